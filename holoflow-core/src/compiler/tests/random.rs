//! Random graphs, as texts that [`kit`](super::kit) reads.
//!
//! Every tensor has a stage: sync nodes stay in the stage of their inputs, async nodes lead to
//! the next. So sections never wait for each other, unless a [`Recipe`] breaks the rule.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::kit::graph;
use crate::graph::GraphSpec;

/// One node, or one line at the border, by numbers that are taken modulo what there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe {
    kind: u8,
    first: u16,
    second: u16,
    choice: u8,
}

/// A random graph.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) text: String,
    /// By which its edges are shuffled.
    pub(super) seed: u64,
}

impl Draft {
    pub(super) fn graph(&self) -> GraphSpec {
        let mut graph = graph(&self.text);
        let mut seed = self.seed;
        shuffle(&mut graph.edges, &mut seed);
        graph
    }
}

/// A shuffle that depends on the seed alone.
pub(super) fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for last in (1..items.len()).rev() {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        items.swap(last, (*seed >> 33) as usize % (last + 1));
    }
}

pub(super) fn draft(nodes: usize) -> impl Strategy<Value = Draft> {
    let recipe = (any::<u8>(), any::<u16>(), any::<u16>(), any::<u8>()).prop_map(
        |(kind, first, second, choice)| Recipe {
            kind,
            first,
            second,
            choice,
        },
    );
    let recipes = prop::collection::vec(recipe, 1..nodes);
    (recipes, any::<bool>(), any::<u64>()).prop_map(|(recipes, strict, seed)| Draft {
        text: write(&recipes, strict),
        seed,
    })
}

/// A tensor as later nodes may use it.
#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    stage: usize,
    extent: usize,
    offset: usize,
}

impl Tensor {
    fn layout(&self) -> String {
        format!("F32:{}+{}", self.extent, self.offset)
    }
}

#[derive(Default)]
struct Writer {
    text: String,
    tensors: Vec<Tensor>,
    nodes: usize,
    outputs: usize,
    unread: BTreeSet<String>,
}

impl Writer {
    fn pick(&self, number: u16) -> Option<Tensor> {
        let count = self.tensors.len();
        (count > 0).then(|| self.tensors[usize::from(number) % count].clone())
    }

    fn pick_in_stage(&self, stage: usize, number: u16) -> Option<Tensor> {
        let same: Vec<&Tensor> = self
            .tensors
            .iter()
            .filter(|tensor| tensor.stage == stage)
            .collect();
        let count = same.len();
        (count > 0).then(|| same[usize::from(number) % count].clone())
    }

    /// Writes a node, and its outputs, given as extent and offset.
    fn node(
        &mut self,
        kind: &str,
        settings: &str,
        inputs: &[&Tensor],
        stage: usize,
        outputs: &[(usize, usize)],
    ) {
        let name = format!("n{}", self.nodes);
        self.nodes += 1;
        let out: Vec<String> = outputs
            .iter()
            .map(|(extent, offset)| format!("F32:{extent}+{offset}"))
            .collect();
        let out = if out.is_empty() {
            "0".to_owned()
        } else {
            out.join("|")
        };
        let _ = write!(self.text, "{name} = {kind}[out={out} {settings}]");
        for input in inputs {
            let _ = write!(self.text, " {}", input.name);
            let from = input.name.split('.').next().unwrap_or("");
            self.unread.remove(from);
        }
        self.text.push('\n');
        if !outputs.is_empty() && matches!(kind, "A" | "Q") {
            self.unread.insert(name.clone());
        }
        for (output, (extent, offset)) in outputs.iter().enumerate() {
            self.tensors.push(Tensor {
                name: format!("{name}.{output}"),
                stage,
                extent: *extent,
                offset: *offset,
            });
        }
    }

    fn output(&mut self, name: &str) {
        self.outputs += 1;
        let _ = writeln!(self.text, "> o{} {name}", self.outputs);
    }
}

fn write(recipes: &[Recipe], strict: bool) -> String {
    let mut writer = Writer::default();
    writer.text.push_str("< x F32:8+4\n");
    writer.tensors.push(Tensor {
        name: "<x".to_owned(),
        stage: 0,
        extent: 8,
        offset: 4,
    });
    for recipe in recipes {
        add(&mut writer, *recipe, strict);
    }
    for name in std::mem::take(&mut writer.unread) {
        writer.output(&format!("{name}.0"));
    }
    writer.text
}

fn add(writer: &mut Writer, recipe: Recipe, strict: bool) {
    let Recipe {
        kind,
        first,
        second,
        choice,
    } = recipe;
    let Some(a) = writer.pick(first) else { return };
    let other = if strict || choice % 4 > 0 {
        writer.pick_in_stage(a.stage, second)
    } else {
        writer.pick(second)
    };
    let b = other.unwrap_or_else(|| a.clone());
    let (stage, next) = (a.stage.max(b.stage), a.stage.max(b.stage) + 1);
    let fresh = (8, usize::from(choice % 3) * 4);
    // A factory may infer as if its input began at 0.
    let (from, wants) = if choice % 2 == 0 {
        (a.offset, String::new())
    } else {
        (0, format!("in=F32:{}", a.extent))
    };
    let same = (a.extent, from);
    match kind % 16 {
        0 => writer.node("S", "", &[], 0, &[fresh]),
        1 => writer.node("S", "own_out=0", &[], 0, &[fresh]),
        2 => writer.node("A", "own_out=0", &[], 0, &[fresh]),
        3 => writer.node("S", "", &[&a], a.stage, &[fresh]),
        4 => writer.node("S", "", &[&a, &b], stage, &[fresh, fresh]),
        5 => writer.node("S", &format!("over=0:0 {wants}"), &[&a], a.stage, &[same]),
        6 => writer.node(
            "S",
            "over=0:1",
            &[&a, &b],
            stage,
            &[fresh, (a.extent, a.offset)],
        ),
        7 => {
            let half = a.extent / 2;
            let part = if choice % 3 == 0 {
                same
            } else {
                (half, from + 4 * (a.extent - half))
            };
            writer.node("S", &format!("view=0:0 {wants}"), &[&a], a.stage, &[part]);
        }
        8 => writer.node("S", "own_in=0", &[&a], a.stage, &[fresh]),
        9 | 10 => writer.node("Q", "flow=1/0/4", &[&a], a.stage + 1, &[(a.extent, 0)]),
        11 => writer.node("A", "", &[&a, &b], next, &[fresh]),
        12 => writer.node("A", "own_in=1 own_out=0", &[&a, &b], next, &[fresh, fresh]),
        13 => {
            let wants = format!(
                "own_in=0 in={}",
                Tensor {
                    offset: 12,
                    ..a.clone()
                }
                .layout()
            );
            writer.node("A", &wants, &[&a], a.stage + 1, &[]);
        }
        14 => writer.node("S", "", &[&a, &b], stage, &[]),
        _ if !a.name.starts_with('<') => {
            let name = a.name.clone();
            writer.unread.remove(name.split('.').next().unwrap_or(""));
            writer.output(&name);
        }
        _ => {}
    }
}
