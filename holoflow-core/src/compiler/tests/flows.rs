//! Cases of flow, W-01, W-02 and W-05, as far as planning decides them.

use super::kit::{errors, plan};

#[test]
fn w_01_an_uneven_diamond_is_rejected_with_the_depth_needed() {
    let diamond = |depth: usize| {
        format!(
            "src = S
             direct = Q[flow=1/0/{depth}] src
             delay = Q[flow=1/3/4] src
             join = S direct delay"
        )
    };
    assert_eq!(
        errors(&diamond(1)),
        "nodes.join: the branches from `src` that meet here are uneven: `delay` needs 4 frames before \
         its first output, and `direct` on another branch holds 1"
    );
    assert!(errors(&diamond(3)).contains("`direct` on another branch holds 3"));
    plan(&diamond(4));
}

#[test]
fn w_01_branches_of_different_rates_are_rejected() {
    assert_eq!(
        errors(
            "src = S
             direct = Q[flow=1/0/64] src
             batch = Q[flow=4/0/4] src
             join = S direct batch"
        ),
        "nodes.join: the branches that meet here deliver at different rates: `batch` one frame for 4 of \
         the source, `direct` one for 1: no queue is deep enough"
    );
}

#[test]
fn w_01_a_queue_that_drops_lets_the_slower_branch_set_the_rate() {
    plan(
        "src = S
         direct = Q[flow=1/0/max] src
         batch = Q[flow=4/0/4] src
         join = S direct batch",
    );
}

#[test]
fn w_01_depths_and_windows_add_up_along_a_branch() {
    let diamond = |depth: usize| {
        format!(
            "src = S
             direct = Q[flow=4/0/{depth}] src
             batch = Q[flow=2/0/2] src
             mid = S batch
             again = Q[flow=2/1/3] mid
             join = S direct again"
        )
    };
    // Two for the first pair, and two more pairs: 2 + 2 x 2.
    assert!(
        errors(&diamond(5))
            .contains("`again` needs 6 frames before its first output, and `direct`"),
        "{}",
        errors(&diamond(5))
    );
    plan(&diamond(6));
}

#[test]
fn w_01_branches_may_meet_far_away_and_further_splits_are_seen() {
    // A recorder on every stage, and one uneven diamond late.
    let mut text = "n0 = S\n".to_owned();
    for n in 0..20 {
        let next = n + 1;
        text.push_str(&format!(
            "q{n} = Q[flow=1/0/4] n{n}\n n{next} = S q{n}\n rec{n} = A[flow=1/2/3 out=0] n{n}\n"
        ));
    }
    text.push_str(
        "direct = A[flow=1/0/2] n20
         slow = A[flow=1/2/3] n20
         join = S direct slow",
    );
    assert_eq!(
        errors(&text),
        "nodes.join: the branches from `n20` that meet here are uneven: `slow` needs 3 frames before \
         its first output, and `direct` on another branch holds 2"
    );
}

#[test]
fn w_01_a_dead_end_where_branches_meet_is_seen_behind_a_longer_branch() {
    assert_eq!(
        errors(
            "src = S
             direct = A[flow=1/0/1] src
             a = A[flow=1/1/2] src
             mid = S a
             b = A[flow=1/0/1] mid
             join = S[out=0] direct b"
        )
        .lines()
        .count(),
        1
    );
}

#[test]
fn w_01_what_declares_no_flow_is_not_judged() {
    plan(
        "src = S
         direct = Q[flow=1/0/1] src
         unknown = Q src
         join = S direct unknown
         slow = Q[flow=1/3/4] join
         end = S slow",
    );
}

#[test]
fn w_02_a_window_larger_than_its_queue_is_rejected() {
    let graph =
        |capacity: usize| format!("src = S\n win = Q[flow=1/7/{capacity}] src\n end = S win");
    assert_eq!(
        errors(&graph(7)),
        "nodes.win: input 0: 8 frames are needed for the first output, and it holds 7"
    );
    plan(&graph(8));
}

#[test]
fn w_02_windows_and_skips_are_reported_at_once() {
    assert_eq!(
        errors(
            "src = S
             win = A[flow=3/0/2] src
             maybe = S[skip] src
             join = S maybe src
             end = S win"
        ),
        "nodes.win: input 0: 3 frames are needed for the first output, and it holds 2\n\
         nodes.join: a frame that `maybe` skips never arrives here, while input 1 does: let both \
         inputs depend on it, or join elsewhere"
    );
}

#[test]
fn w_02_numbers_at_the_end_of_their_range_do_not_overflow() {
    assert_eq!(
        errors("src = S\n win = A[flow=max/max/4] src\n end = S win"),
        format!(
            "nodes.win: input 0: {} frames are needed for the first output, and it holds 4",
            usize::MAX
        )
    );
    plan("src = S\n win = A[flow=max/max/max] src\n end = S win");
}

#[test]
fn w_05_a_skipping_branch_may_not_meet_one_that_does_not_skip() {
    let text =
        |join: &str| format!("src = S\n maybe = S[skip] src\n b = S maybe\n join = S {join}");
    assert_eq!(
        errors(&text("src b")),
        "nodes.join: a frame that `maybe` skips never arrives here, while input 0 does: let both \
         inputs depend on it, or join elsewhere"
    );
    assert_eq!(
        errors(&text("b src")),
        "nodes.join: a frame that `maybe` skips never arrives here, while input 1 does: let both \
         inputs depend on it, or join elsewhere"
    );
    plan(&text("b maybe"));
}

#[test]
fn w_05_skips_travel_through_queues() {
    assert_eq!(
        errors(
            "src = S
             maybe = S[skip] src
             p = Q maybe
             q = A src
             join = S q p"
        ),
        "nodes.join: a frame that `maybe` skips never arrives here, while input 0 does: let both \
         inputs depend on it, or join elsewhere"
    );
}

#[test]
fn w_05_two_nodes_that_skip_are_not_one() {
    assert_eq!(
        errors(
            "src = S
             first = S[skip] src
             a = S[skip] first
             b = S[skip] first
             join = S a b"
        ),
        "nodes.join: a frame that `b` skips never arrives here, while input 0 does: let both inputs \
         depend on it, or join elsewhere"
    );
}

#[test]
fn w_05_a_node_that_skips_after_a_join_is_fine() {
    plan("src = S\n a = S src\n b = S src\n join = S[skip] a b\n end = S join join");
}
