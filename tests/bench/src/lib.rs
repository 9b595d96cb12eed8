//! The runner that all benches of the workspace share.
//!
//! A bench is a `main` that makes a [`Bench`], measures one [`Figure`] after another, and
//! ends with [`Bench::finish`], which prints a table and, with `-- --json`, one JSON object
//! a line. An argument that is no flag selects the figures whose names contain it.
//!
//! How it measures:
//!
//! 1. A loop's iterations are doubled until it lasts long enough to extrapolate from,
//!    which warms up as well; then they are set so that a round lasts about 70 ms.
//! 2. Ours and its peers take turns for seven rounds, first forwards, then backwards, so
//!    that what disturbs the machine disturbs all of them.
//! 3. The value is the median of the rounds. A ratio is the median of the rounds' ratios,
//!    each of two neighbours in time: ours over the peer's, so of times below 1 is faster.
//!
//! The clock is read outside the loop. Keeping the optimiser from removing the work, with
//! [`std::hint::black_box`], is up to the closure measured, since only that knows what a
//! user's code would make opaque.
//!
//! What this does not know: what is measured, and whether a missed target matters. It
//! prints how much a target is missed by, and the process ends with 0 all the same: a
//! shared machine's mood should break no build.

pub mod stages;
pub mod usage;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::exit;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// Rounds of a figure; odd, so that the median is one of them.
const ROUNDS: usize = 7;

/// How long one round of a loop should last.
const ROUND: Duration = Duration::from_millis(70);

/// How long a loop must last to extrapolate from.
const PROBE: Duration = Duration::from_millis(10);

/// One run of a bench: what to measure, and what was measured.
#[derive(Debug)]
pub struct Bench {
    options: Options,
    rows: Vec<Row>,
}

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    json: bool,
    filters: Vec<String>,
}

impl Options {
    fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        for arg in args {
            match arg.as_str() {
                "--json" => options.json = true,
                // Cargo passes it to every bench.
                "--bench" => {}
                flag if flag.starts_with('-') => {
                    return Err(format!("unknown flag {flag}; known: --json, NAME"));
                }
                _ => options.filters.push(arg),
            }
        }
        Ok(options)
    }

    fn selects(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|part| name.contains(part.as_str()))
    }
}

/// Unit of a measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
        }
    }

    fn of(self, time: Duration, iterations: u64) -> f64 {
        let per_second = match self {
            Self::Ns => 1e9,
            Self::Us => 1e6,
            Self::Ms => 1e3,
        };
        time.as_secs_f64() * per_second / iterations as f64
    }
}

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
}

impl Target {
    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::RatioAtMost(limit) => format!("ratio <= {limit}"),
            Self::RatioAtLeast(limit) => format!("ratio >= {limit}"),
        }
    }

    /// Whether it is met, or missed by how much; `None` if it is of a ratio and there is
    /// none.
    fn verdict(self, value: f64, ratio: Option<f64>) -> Option<String> {
        let (found, limit, at_most) = match self {
            Self::AtMost(limit) => (value, limit, true),
            Self::AtLeast(limit) => (value, limit, false),
            Self::RatioAtMost(limit) => (ratio?, limit, true),
            Self::RatioAtLeast(limit) => (ratio?, limit, false),
        };
        let short = if at_most {
            found - limit
        } else {
            limit - found
        };
        // Written so that a figure that is no number misses.
        if short <= 0.0 {
            return Some("met".to_owned());
        }
        let mut text = format!("missed by {}", number(short));
        if limit != 0.0 {
            let _ = write!(text, " ({:.0} %)", 100.0 * short / limit.abs());
        }
        Some(text)
    }
}

/// One line of the table: a figure, or its ratio to a further peer.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    peer: Option<(&'static str, f64)>,
    targets: Vec<Target>,
}

impl Row {
    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("name".to_owned(), json!(self.name));
        object.insert("value".to_owned(), json!(rounded(self.value)));
        object.insert("unit".to_owned(), json!(self.unit));
        if let Some((peer, ratio)) = self.peer {
            object.insert("peer".to_owned(), json!(peer));
            object.insert("ratio".to_owned(), json!(rounded(ratio)));
        }
        Value::Object(object)
    }

    fn cells(&self) -> [String; 7] {
        let ratio = self.peer.map(|(_, ratio)| ratio);
        let verdicts: Vec<_> = self
            .targets
            .iter()
            .map(|target| {
                target
                    .verdict(self.value, ratio)
                    .unwrap_or_else(|| "no peer ran".to_owned())
            })
            .collect();
        let targets: Vec<_> = self.targets.iter().map(|target| target.text()).collect();
        [
            self.name.clone(),
            number(self.value),
            self.unit.to_owned(),
            self.peer
                .map_or_else(String::new, |(peer, _)| peer.to_owned()),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            targets.join(", "),
            verdicts.join(", "),
        ]
    }
}

impl Bench {
    /// A bench with the arguments of this process. Unknown flags end it with 2.
    #[must_use]
    pub fn from_args() -> Self {
        match Options::parse(std::env::args().skip(1)) {
            Ok(options) => Self {
                options,
                rows: Vec::new(),
            },
            Err(message) => {
                eprintln!("{message}");
                exit(2);
            }
        }
    }

    /// Whether the arguments select the figure `name`: asked before costly preparations.
    #[must_use]
    pub fn selects(&self, name: &str) -> bool {
        self.options.selects(name)
    }

    /// Begins a figure. It is measured by [`Figure::time`] or [`Figure::sample`], unless the
    /// arguments leave it out.
    pub fn figure<'b>(&'b mut self, name: &str) -> Figure<'b> {
        Figure {
            bench: self,
            name: name.to_owned(),
            targets: Vec::new(),
            peers: Vec::new(),
        }
    }

    /// Adds a figure that is known already, such as a count, for which no rounds are due.
    pub fn known(&mut self, name: &str, unit: &'static str, value: f64) {
        self.figure(name).add(unit, value, &[]);
    }

    /// Prints what was measured: the table on standard output, or with `--json` on standard
    /// error, and the JSON lines on standard output.
    pub fn finish(self) {
        let text = table(&self.rows);
        if !self.options.json {
            print!("{text}");
            return;
        }
        eprint!("{text}");
        let mut lines = String::new();
        for row in &self.rows {
            let _ = writeln!(lines, "{}", row.json());
        }
        // A reader that has gone is no failure of the bench.
        let _ = std::io::stdout().write_all(lines.as_bytes());
    }
}

/// A figure that is about to be measured.
#[must_use = "nothing is measured before `time` or `sample`"]
pub struct Figure<'b> {
    bench: &'b mut Bench,
    name: String,
    targets: Vec<Target>,
    peers: Vec<(&'static str, Work<'b>)>,
}

/// What is measured once a round.
enum Work<'w> {
    /// Does the work as often as it is told; its time is measured from outside.
    Loop(Box<dyn FnMut(u64) + 'w>),
    /// Measures by itself.
    Sample(Box<dyn FnMut() -> f64 + 'w>),
}

impl<'b> Figure<'b> {
    /// Target: the value is at most `limit`.
    pub fn at_most(mut self, limit: f64) -> Self {
        self.targets.push(Target::AtMost(limit));
        self
    }

    /// Target: the value is at least `limit`.
    pub fn at_least(mut self, limit: f64) -> Self {
        self.targets.push(Target::AtLeast(limit));
        self
    }

    /// Target: the ratio to the first peer is at most `limit`.
    pub fn ratio_at_most(mut self, limit: f64) -> Self {
        self.targets.push(Target::RatioAtMost(limit));
        self
    }

    /// Target: the ratio to the first peer is at least `limit`.
    pub fn ratio_at_least(mut self, limit: f64) -> Self {
        self.targets.push(Target::RatioAtLeast(limit));
        self
    }

    /// Adds a peer that does the same work as often as it is told.
    pub fn peer(mut self, peer: &'static str, work: impl FnMut(u64) + 'b) -> Self {
        self.peers.push((peer, Work::Loop(Box::new(work))));
        self
    }

    /// Adds a peer that measures by itself, in the figure's unit.
    pub fn peer_sample(mut self, peer: &'static str, work: impl FnMut() -> f64 + 'b) -> Self {
        self.peers.push((peer, Work::Sample(Box::new(work))));
        self
    }

    /// Measures the time of one iteration of `work`, which does as many as it is told.
    pub fn time(self, unit: Unit, work: impl FnMut(u64) + 'b) {
        self.measure(unit.name(), unit, Work::Loop(Box::new(work)));
    }

    /// Measures what `work` returns, once a round. Peers must be samples too.
    pub fn sample(self, unit: &'static str, work: impl FnMut() -> f64 + 'b) {
        self.measure(unit, Unit::Ns, Work::Sample(Box::new(work)));
    }

    fn measure(mut self, name: &'static str, unit: Unit, ours: Work<'b>) {
        if !self.bench.selects(&self.name) {
            return;
        }
        let peers = std::mem::take(&mut self.peers);
        let (labels, works): (Vec<_>, Vec<_>) = peers.into_iter().unzip();
        let mut contestants: Vec<_> = std::iter::once(ours)
            .chain(works)
            .map(|work| Contestant::calibrated(work, unit))
            .collect();
        for round in 0..ROUNDS {
            let last = contestants.len() - 1;
            for turn in 0..=last {
                let turn = if round % 2 == 0 { turn } else { last - turn };
                contestants[turn].round(unit);
            }
        }
        let ours = &contestants[0].results;
        let ratios: Vec<_> = labels
            .into_iter()
            .zip(&contestants[1..])
            .map(|(label, peer)| (label, median_ratio(ours, &peer.results)))
            .collect();
        let value = median(ours);
        self.add(name, value, &ratios);
    }

    /// Adds a figure that was measured elsewhere: one that takes so long that there are no
    /// rounds.
    pub fn measured(self, unit: &'static str, value: f64) {
        self.add(unit, value, &[]);
    }

    /// As [`measured`](Self::measured), with the figures of a peer that took turns with it.
    pub fn measured_with(
        self,
        unit: &'static str,
        peer: &'static str,
        ours: &[f64],
        peers: &[f64],
    ) {
        self.add(unit, median(ours), &[(peer, median_ratio(ours, peers))]);
    }

    /// Adds the figure's row, and one for every peer after the first.
    fn add(self, unit: &'static str, value: f64, peers: &[(&'static str, f64)]) {
        if !self.bench.selects(&self.name) {
            return;
        }
        let row = Row {
            name: self.name,
            value,
            unit,
            peer: peers.first().copied(),
            targets: self.targets,
        };
        let further: Vec<_> = peers
            .iter()
            .skip(1)
            .map(|peer| Row {
                peer: Some(*peer),
                targets: Vec::new(),
                ..row.clone()
            })
            .collect();
        self.bench.rows.push(row);
        self.bench.rows.extend(further);
    }
}

impl std::fmt::Debug for Figure<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Figure")
            .field("name", &self.name)
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

/// One of those that take turns.
struct Contestant<'w> {
    work: Work<'w>,
    iterations: u64,
    results: Vec<f64>,
}

impl<'w> Contestant<'w> {
    fn calibrated(mut work: Work<'w>, unit: Unit) -> Self {
        let mut iterations = 1;
        match &mut work {
            Work::Loop(work) => {
                iterations = calibrate(|iterations| timed(work, iterations));
            }
            // One to warm up.
            Work::Sample(work) => drop(work()),
        }
        let mut contestant = Self {
            work,
            iterations,
            results: Vec::with_capacity(ROUNDS),
        };
        // The first round of full length warms up what the short ones did not.
        contestant.round(unit);
        contestant.results.clear();
        contestant
    }

    fn round(&mut self, unit: Unit) {
        self.results.push(match &mut self.work {
            Work::Loop(work) => unit.of(timed(work, self.iterations), self.iterations),
            Work::Sample(work) => work(),
        });
    }
}

fn timed(work: &mut dyn FnMut(u64), iterations: u64) -> Duration {
    let start = Instant::now();
    work(iterations);
    start.elapsed()
}

/// Iterations that last about a [`ROUND`], by what `time` says of fewer.
fn calibrate(mut time: impl FnMut(u64) -> Duration) -> u64 {
    let mut iterations = 1_u64;
    loop {
        let lasted = time(iterations);
        if lasted >= PROBE || iterations > u64::MAX / 4 {
            let scale = ROUND.as_secs_f64() / lasted.as_secs_f64().max(1e-9);
            return ((iterations as f64 * scale) as u64).max(1);
        }
        iterations *= 2;
    }
}

/// The middle value; of an even number the mean of both. Not a number if there is none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Median of the ratios of values taken at about the same time.
fn median_ratio(ours: &[f64], peers: &[f64]) -> f64 {
    let ratios: Vec<_> = ours
        .iter()
        .zip(peers)
        .map(|(ours, peer)| ours / peer)
        .collect();
    median(&ratios)
}

/// A value with about three figures.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// For JSON: no more decimals than a measurement has.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

const HEADINGS: [&str; 7] = ["name", "value", "unit", "peer", "ratio", "target", ""];

/// Columns of numbers, which are aligned to the right.
const NUMBERS: [usize; 2] = [1, 4];

fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let mut widths = [0; HEADINGS.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let mut padded = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = if NUMBERS.contains(&column) {
                write!(padded, "{gap}{cell:>width$}")
            } else {
                write!(padded, "{gap}{cell:<width$}")
            };
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(filters: &[&str]) -> Bench {
        let filters = filters.iter().map(|part| (*part).to_owned()).collect();
        Bench {
            options: Options {
                json: false,
                filters,
            },
            rows: Vec::new(),
        }
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_both() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[5.0]), 5.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_ratio_is_of_neighbours_in_time() {
        // The machine was three times slower in the second round, for both.
        assert_eq!(median_ratio(&[1.0, 3.0, 1.0], &[2.0, 6.0, 2.0]), 0.5);
    }

    #[test]
    fn calibration_aims_at_the_length_of_a_round() {
        let iterations = calibrate(|iterations| Duration::from_nanos(7 * iterations));
        assert!(
            (9_999_000..=10_001_000).contains(&iterations),
            "{iterations}"
        );
        assert_eq!(calibrate(|_| Duration::from_secs(1)), 1);
    }

    #[test]
    fn arguments_are_flags_and_parts_of_names() {
        let parse = |args: &[&str]| Options::parse(args.iter().map(|arg| (*arg).to_owned()));
        let options = parse(&["--bench", "ring", "--json", "get"]).unwrap();
        assert!(options.json);
        assert!(options.selects("storage/ring_ns_per_frame"));
        assert!(options.selects("storage/typed_get_ns"));
        assert!(!options.selects("storage/publish_retract_ns"));
        assert!(parse(&[]).unwrap().selects("anything"));
        assert_eq!(
            parse(&["--jsno"]).unwrap_err(),
            "unknown flag --jsno; known: --json, NAME"
        );
    }

    #[test]
    fn a_target_says_by_how_much_it_is_missed() {
        assert_eq!(Target::AtMost(6.0).verdict(6.0, None).unwrap(), "met");
        assert_eq!(
            Target::AtMost(6.0).verdict(9.0, None).unwrap(),
            "missed by 3.00 (50 %)"
        );
        assert_eq!(
            Target::AtMost(0.0).verdict(2.0, None).unwrap(),
            "missed by 2.00"
        );
        assert_eq!(
            Target::AtLeast(0.8).verdict(0.6, None).unwrap(),
            "missed by 0.20 (25 %)"
        );
        assert_eq!(
            Target::RatioAtMost(1.0).verdict(50.0, Some(0.9)).unwrap(),
            "met"
        );
        assert_eq!(
            Target::RatioAtLeast(2.0).verdict(0.0, Some(1.0)).unwrap(),
            "missed by 1.00 (50 %)"
        );
        assert_eq!(Target::RatioAtMost(1.0).verdict(50.0, None), None);
        assert_eq!(
            Target::AtMost(6.0).verdict(f64::NAN, None).unwrap(),
            "missed by NaN (NaN %)"
        );
    }

    #[test]
    fn a_round_is_measured_in_the_unit_asked_for() {
        let time = Duration::from_millis(6);
        assert_eq!(Unit::Ns.of(time, 1_000), 6_000.0);
        assert_eq!(Unit::Us.of(time, 1_000), 6.0);
        assert_eq!(Unit::Ms.of(time, 2), 3.0);
    }

    #[test]
    fn samples_take_turns_with_their_peers_and_keep_the_order_of_rows() {
        let order = std::cell::RefCell::new(String::new());
        let mut bench = bench(&[]);
        {
            let say = |who: char, value: f64| {
                order.borrow_mut().push(who);
                value
            };
            bench
                .figure("a/b")
                .at_most(3.0)
                .peer_sample("first", || say('f', 4.0))
                .peer_sample("second", || say('s', 1.0))
                .sample("us", || say('o', 2.0));
        }
        // Each warms up twice first.
        assert!(order.borrow().starts_with("ooffss"), "{}", order.borrow());
        assert!(
            order.borrow()[6..].starts_with("ofssfoofs"),
            "{}",
            order.borrow()
        );
        let peers: Vec<_> = bench.rows.iter().map(|row| row.peer).collect();
        assert_eq!(peers, [Some(("first", 0.5)), Some(("second", 2.0))]);
        assert_eq!(bench.rows[0].targets, [Target::AtMost(3.0)]);
        assert!(bench.rows[1].targets.is_empty());
    }

    #[test]
    fn a_figure_that_is_not_selected_is_not_run() {
        let mut bench = bench(&["other"]);
        bench.figure("a/b").sample("us", || panic!("not selected"));
        bench.known("a/c", "bytes", 0.0);
        assert!(bench.rows.is_empty());
    }

    #[test]
    fn json_has_peer_and_ratio_only_where_a_peer_ran() {
        let mut row = Row {
            name: "a/b".to_owned(),
            value: 2.123_456,
            unit: "ns",
            peer: None,
            targets: vec![Target::AtMost(6.0)],
        };
        assert_eq!(
            row.json().to_string(),
            r#"{"name":"a/b","unit":"ns","value":2.1235}"#
        );
        row.peer = Some(("rtrb", 0.5));
        assert_eq!(
            row.json().to_string(),
            r#"{"name":"a/b","peer":"rtrb","ratio":0.5,"unit":"ns","value":2.1235}"#
        );
    }

    #[test]
    fn the_table_is_aligned_and_ends_lines_without_blanks() {
        let row = |name: &str, value, peer, targets: &[Target]| Row {
            name: name.to_owned(),
            value,
            unit: "ns",
            peer,
            targets: targets.to_vec(),
        };
        let rows = [
            row("a/short", 5.5, None, &[]),
            row(
                "a/longer_name",
                123.4,
                Some(("rtrb", 1.2)),
                &[Target::AtMost(100.0)],
            ),
        ];
        let expected = "\
name           value  unit  peer  ratio  target
a/short         5.50  ns
a/longer_name    123  ns    rtrb   1.20  <= 100  missed by 23.4 (23 %)
";
        assert_eq!(table(&rows), expected);
    }
}
