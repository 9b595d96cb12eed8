//! Which of several orders that are wished for cannot be had.
//!
//! Nodes need others, which is settled; and there are wishes that some node runs before
//! another. What cannot be kept together is given up, by a rule that does not depend on the
//! order of the nodes:
//!
//! 1. Nodes run, as needs and wishes allow, until none can.
//! 2. Of those left, some wait for wishes alone. A wish of theirs whose first node needs the
//!    node that waits for it can never be kept, and is given up.
//! 3. If there is none, several wait for each other in a circle. Of the wishes on a circle, the
//!    one with the least rank is given up.
//!
//! A walk goes no further than the nodes that have not run, so that conflicts that have nothing
//! to do with each other cost no more than they would alone. Where they do, so that the same
//! nodes would be walked over again and again, there is a limit to all walks together
//! ([`WALKS`]); beyond it, what nodes wait for when none can run is given up without a proof
//! that it must be. Giving up a wish is never wrong, it may only be one too many.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Steps of all walks together, for each node.
const WALKS: usize = 64;

/// A wish that node `first` runs before node `then`.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) first: usize,
    pub(super) then: usize,
    /// Wishes of one group have the same `then`, and are given up together.
    pub(super) group: usize,
    /// A number of its own.
    pub(super) rank: usize,
}

/// The wishes to give up, one for each group.
pub(super) fn unkept<N: Iterator<Item = usize>>(
    count: usize,
    needs: impl Fn(usize) -> N,
    wishes: &[Wish],
) -> Vec<&Wish> {
    let mut run = Run {
        needs,
        hard: vec![0; count],
        soft: vec![0; count],
        needed_by: vec![Vec::new(); count],
        wished_by: vec![Vec::new(); count],
        waits_for: vec![Vec::new(); count],
        dropped: vec![false; wishes.iter().map(|wish| wish.group + 1).max().unwrap_or(0)],
        done: vec![false; count],
        ready: Vec::new(),
        unchecked: Vec::new(),
        stuck: BinaryHeap::new(),
        found: Vec::new(),
        steps: std::cell::Cell::new(WALKS * (count + 1)),
    };
    for node in 0..count {
        for needed in (run.needs)(node) {
            run.hard[node] += 1;
            run.needed_by[needed].push(node);
        }
    }
    for wish in wishes {
        run.soft[wish.then] += 1;
        run.wished_by[wish.first].push(wish);
        run.waits_for[wish.then].push(wish);
    }
    for waits in &mut run.waits_for {
        waits.sort_by_key(|wish| wish.rank);
    }
    for node in 0..count {
        run.look_at(node);
    }
    loop {
        run.run_what_can();
        if !run.give_up_hopeless() && !run.break_circle() {
            return run.found;
        }
    }
}

struct Run<'w, F> {
    needs: F,
    /// For each node, the needs and the wishes that it waits for.
    hard: Vec<usize>,
    soft: Vec<usize>,
    needed_by: Vec<Vec<usize>>,
    wished_by: Vec<Vec<&'w Wish>>,
    /// By rank.
    waits_for: Vec<Vec<&'w Wish>>,
    /// For each group.
    dropped: Vec<bool>,
    done: Vec<bool>,
    ready: Vec<usize>,
    /// Nodes that wait for wishes alone, of which step 2 has not been done.
    unchecked: Vec<usize>,
    /// Those of which it has, by the least rank of their wishes.
    stuck: BinaryHeap<Reverse<(usize, usize)>>,
    found: Vec<&'w Wish>,
    /// Those that walks may still take.
    steps: std::cell::Cell<usize>,
}

impl<'w, N: Iterator<Item = usize>, F: Fn(usize) -> N> Run<'w, F> {
    /// Notes a node that needs nothing any more.
    fn look_at(&mut self, node: usize) {
        if self.hard[node] > 0 {
            return;
        }
        if self.soft[node] == 0 {
            self.ready.push(node);
        } else {
            self.unchecked.push(node);
        }
    }

    fn run_what_can(&mut self) {
        while let Some(node) = self.ready.pop() {
            self.done[node] = true;
            for next in std::mem::take(&mut self.needed_by[node]) {
                self.hard[next] -= 1;
                self.look_at(next);
            }
            for wish in std::mem::take(&mut self.wished_by[node]) {
                if !self.dropped[wish.group] {
                    self.kept(wish.then);
                }
            }
        }
    }

    /// One wish less to wait for.
    fn kept(&mut self, node: usize) {
        self.soft[node] -= 1;
        if self.soft[node] == 0 && self.hard[node] == 0 {
            self.ready.push(node);
        }
    }

    fn waits(&self, wish: &Wish) -> bool {
        !self.dropped[wish.group] && !self.done[wish.first]
    }

    fn give_up(&mut self, wish: &'w Wish) {
        self.found.push(wish);
        let group: Vec<&Wish> = self.waits_for[wish.then]
            .iter()
            .copied()
            .filter(|other| other.group == wish.group && self.waits(other))
            .collect();
        self.dropped[wish.group] = true;
        for other in group {
            self.kept(other.then);
        }
    }

    /// Step 2. Whether there were any.
    fn give_up_hopeless(&mut self) -> bool {
        let before = self.found.len();
        let mut unchecked = std::mem::take(&mut self.unchecked);
        unchecked.sort_by_key(|node| self.waits_for[*node].first().map(|wish| wish.rank));
        for node in unchecked {
            for wish in self.waits_for[node].clone() {
                let hopeless = || {
                    let blockers = self.blockers(wish.first);
                    blockers.is_none_or(|blockers| blockers.contains(&node))
                };
                if self.waits(wish) && hopeless() {
                    self.give_up(wish);
                }
            }
            let least = self.waits_for[node].iter().find(|wish| self.waits(wish));
            if let Some(wish) = least {
                self.stuck.push(Reverse((wish.rank, node)));
            }
        }
        self.found.len() > before
    }

    /// What `node` waits for in the end: nodes that need nothing, itself or what it needs. `None`
    /// if there were too many steps.
    fn blockers(&self, node: usize) -> Option<Vec<usize>> {
        let mut blockers = Vec::new();
        let mut seen = HashSet::from([node]);
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            self.steps.set(self.steps.get().checked_sub(1)?);
            if self.hard[node] == 0 {
                blockers.push(node);
            }
            let needed = (self.needs)(node).filter(|needed| !self.done[*needed]);
            stack.extend(needed.filter(|needed| seen.insert(*needed)));
        }
        Some(blockers)
    }

    /// Step 3. Whether any node is left.
    fn break_circle(&mut self) -> bool {
        while self.stuck.peek().is_some_and(|top| self.done[top.0.1]) {
            self.stuck.pop();
        }
        let Some(Reverse((_, start))) = self.stuck.peek() else {
            return false;
        };
        let mut seen = HashMap::new();
        let mut path: Vec<&'w Wish> = Vec::new();
        let mut node = *start;
        let circle = loop {
            if let Some(begin) = seen.insert(node, path.len()) {
                break begin;
            }
            let least = |node: usize| {
                let waits = &self.waits_for[node];
                waits.iter().find(|wish| self.waits(wish)).copied()
            };
            // Neither is missing: the node has not run, so it waits for something.
            let Some(wish) = least(node) else {
                return false;
            };
            let Some(blockers) = self.blockers(wish.first) else {
                self.give_up(wish);
                return true;
            };
            let blockers = blockers.into_iter();
            let next = blockers.min_by_key(|node| least(*node).map(|wish| wish.rank));
            let Some(next) = next else { return false };
            path.push(wish);
            node = next;
        };
        match path[circle..].iter().min_by_key(|wish| wish.rank) {
            Some(wish) => {
                self.give_up(wish);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(needs: &[(usize, usize)], wishes: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let wishes: Vec<Wish> = wishes
            .iter()
            .enumerate()
            .map(|(rank, (first, then))| Wish {
                first: *first,
                then: *then,
                group: rank,
                rank,
            })
            .collect();
        let needed = |node| {
            let of = needs.iter().filter(move |(_, then)| *then == node);
            of.map(|(first, _)| *first)
        };
        unkept(8, needed, &wishes)
            .into_iter()
            .map(|wish| (wish.first, wish.then))
            .collect()
    }

    #[test]
    fn what_can_be_kept_is_kept() {
        assert_eq!(given_up(&[(0, 1), (0, 2)], &[(2, 1), (3, 2)]), []);
    }

    #[test]
    fn a_wish_against_a_need_is_given_up_and_no_other() {
        // 1 and 2 overwrite in turn, 3 reads what 1 overwrote, but needs 2; 4 reads what 2
        // overwrites, which is no obstacle.
        let needs = [(0, 1), (1, 2), (2, 3), (1, 4)];
        assert_eq!(given_up(&needs, &[(4, 2), (3, 1)]), [(3, 1)]);
        assert_eq!(given_up(&needs, &[(3, 1), (4, 2)]), [(3, 1)]);
    }

    #[test]
    fn walks_come_to_an_end() {
        // A long chain in place, of which the last nodes read all that was overwritten.
        let chain = 20_000;
        let needed = |node: usize| {
            let before = match node {
                0 => None,
                node if node < chain => Some(node - 1),
                _ => Some(chain - 1),
            };
            before.into_iter()
        };
        let wishes: Vec<Wish> = (0..chain - 1)
            .map(|node| Wish {
                first: chain + node,
                then: node + 1,
                group: node,
                rank: node,
            })
            .collect();
        assert_eq!(unkept(2 * chain, needed, &wishes).len(), chain - 1);
    }

    #[test]
    fn of_a_circle_of_wishes_the_least_is_given_up() {
        let circle = [(0, 1), (1, 2), (2, 0)];
        assert_eq!(given_up(&[], &circle), [(0, 1)]);
        assert_eq!(given_up(&[], &[(1, 2), (2, 0), (0, 1)]), [(1, 2)]);
        // With needs between.
        assert_eq!(given_up(&[(0, 4), (1, 5)], &[(5, 0), (4, 1)]), [(5, 0)]);
    }
}
