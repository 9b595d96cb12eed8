//! A plan as a drawing, in the language of Graphviz.
//!
//! Each section is a cluster. An async node is drawn as two halves, one in the cluster of each
//! of its sections, joined by a dotted edge. Edges carry tensor, storage and layout.

use std::fmt::Write as _;

use serde_json::Value;

use super::plan::{Plan, PlanNode};
use crate::graph::quoted;
use crate::ids::{NodeId, SectionId, TensorId};
use crate::task::TaskKind;

/// Settings are cut after so many characters.
const SETTINGS: usize = 300;

impl Plan {
    /// Draws the plan, for Graphviz: `dot -Tsvg`.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph holoflow_compiled {\n");
        for line in self.lines() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {line}");
        }
        text.push_str("}\n");
        text
    }

    fn lines(&self) -> Vec<String> {
        let streams = self
            .sections
            .iter()
            .filter(|section| section.device.is_some())
            .count();
        let asyncs = self
            .nodes
            .iter()
            .filter(|node| node.task == TaskKind::Async)
            .count();
        let mut lines = vec![
            format!("// streams: {streams}"),
            format!(
                "// tasks: {} sync, {asyncs} async",
                self.nodes.len() - asyncs
            ),
            "rankdir=LR;".to_owned(),
            "node [shape=box];".to_owned(),
        ];
        for (index, section) in self.sections.iter().enumerate() {
            let id = SectionId::new(u32::try_from(index).unwrap_or(u32::MAX));
            let title = format!("Section {id}: {}", self.section_name(id));
            lines.push(format!("subgraph cluster_{id} {{"));
            lines.push(format!("  label={};", quoted(&title)));
            let halves = section.pops.iter().map(|node| (node, 'c'));
            let halves = halves.chain(section.sync.iter().map(|node| (node, 's')));
            let halves = halves.chain(section.pushes.iter().map(|node| (node, 'p')));
            for (node, half) in halves {
                lines.push(format!(
                    "  n{node}{half} [label={}];",
                    self.label(*node, half)
                ));
            }
            lines.push("}".to_owned());
        }
        for (name, tensor) in &self.inputs {
            lines.push(format!("i{tensor} [label={} style=rounded];", quoted(name)));
        }
        for (number, name) in self.outputs.keys().enumerate() {
            lines.push(format!("o{number} [label={} style=rounded];", quoted(name)));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.task == TaskKind::Async && node.producer.is_some() && node.consumer.is_some() {
                lines.push(format!(
                    "n{index}p -> n{index}c [style=dotted arrowhead=none];"
                ));
            }
        }
        self.edges(&mut lines);
        lines
    }

    fn edges(&self, lines: &mut Vec<String>) {
        for (index, tensor) in self.tensors.iter().enumerate() {
            let (storage, desc) = (tensor.storage, &tensor.desc);
            let from = match tensor.producer {
                Some((node, output)) => {
                    let half = if self.is_async(node) { 'c' } else { 's' };
                    (format!("n{node}{half}"), format!(" taillabel=\"{output}\""))
                }
                None => (format!("i{index}"), String::new()),
            };
            let shared = tensor
                .producer
                .and_then(|(node, output)| Self::sharing(self.nodes.get(node.index())?, output));
            let shared = shared.map_or_else(String::new, |shared| format!("\n({shared})"));
            let label = quoted(&format!("t{index} s{storage}\n{desc}{shared}"));
            for (node, input) in &tensor.readers {
                let half = if self.is_async(*node) { 'p' } else { 's' };
                let (from, tail) = &from;
                lines.push(format!(
                    "{from} -> n{node}{half} [label={label}{tail} headlabel=\"{input}\"];"
                ));
            }
            for (number, output) in self.outputs.values().enumerate() {
                if *output == TensorId::new(u32::try_from(index).unwrap_or(u32::MAX)) {
                    let (from, tail) = &from;
                    lines.push(format!("{from} -> o{number} [label={label}{tail}];"));
                }
            }
        }
    }

    fn is_async(&self, node: NodeId) -> bool {
        self.nodes
            .get(node.index())
            .is_some_and(|node| node.task == TaskKind::Async)
    }

    fn label(&self, node: NodeId, half: char) -> String {
        let Some(found) = self.nodes.get(node.index()) else {
            return quoted("");
        };
        let PlanNode {
            name,
            kind,
            inputs,
            outputs,
            ..
        } = found;
        let ids = |tensors: &[TensorId]| {
            tensors
                .iter()
                .map(|tensor| format!("t{tensor}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (side, tensors) = match half {
            'p' => ("\npush side", format!("{} ->", ids(inputs))),
            'c' => ("\npop side", format!("-> {}", ids(outputs))),
            _ => ("", format!("{} -> {}", ids(inputs), ids(outputs))),
        };
        let mut text = format!("{name}\n[{kind}]{side}\n{}", tensors.trim());
        if found.debug && half != 'c' && shows(&found.settings) {
            let settings = found.settings.to_string();
            match settings.char_indices().nth(SETTINGS) {
                // Writing to a string does not fail.
                Some((end, _)) => drop(write!(text, "\n{}…", &settings[..end])),
                None => drop(write!(text, "\n{settings}")),
            }
        }
        quoted(&text)
    }
}

/// Whether there are settings to be shown.
fn shows(settings: &Value) -> bool {
    match settings {
        Value::Null => false,
        Value::Object(settings) => !settings.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::compiler::{Compiler, Plan};
    use crate::graph::GraphSpec;
    use crate::registry::Registry;
    use crate::task::{
        CreateCtx, IAsyncTask, IAsyncTaskFactory, ISyncTask, ISyncTaskFactory, InferResult,
        TaskError, TaskInfo, TaskRequest, TaskResult,
    };
    use crate::tensor::TDesc;

    /// Gives U8[4] and overwrites its input, if it has one.
    struct Sync;

    impl ISyncTaskFactory for Sync {
        fn describe(&self) -> TaskInfo {
            TaskInfo::new("Sync.")
        }

        fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
            let frame = TDesc::host::<u8>([4])?;
            let result = InferResult::sync(request.inputs().to_vec(), [frame]);
            Ok(match request.inputs().len() {
                0 => result,
                _ => result.overwriting(0, 0),
            })
        }

        fn create(
            &self,
            _: &TaskRequest<'_>,
            _: &mut CreateCtx<'_>,
        ) -> TaskResult<Box<dyn ISyncTask>> {
            Err(TaskError::other("only planned"))
        }
    }

    struct Queue;

    impl IAsyncTaskFactory for Queue {
        fn describe(&self) -> TaskInfo {
            TaskInfo::new("Queue.")
        }

        fn infer(&self, request: &TaskRequest<'_>) -> TaskResult<InferResult> {
            let [frame] = request.exactly::<1>()?;
            Ok(InferResult::asynchronous([frame.clone()], [frame.clone()]).owning_outputs())
        }

        fn create(
            &self,
            _: &TaskRequest<'_>,
            _: &mut CreateCtx<'_>,
        ) -> TaskResult<Box<dyn IAsyncTask>> {
            Err(TaskError::other("only planned"))
        }
    }

    fn plan(json: serde_json::Value) -> Plan {
        let mut registry = Registry::new();
        registry.register_sync("Sync", Sync).unwrap();
        registry.register_async("Queue", Queue).unwrap();
        let (graph, _) = GraphSpec::from_json(&json).unwrap();
        Compiler::new(&registry).plan(&graph).unwrap()
    }

    #[test]
    fn d_05_sections_are_clusters_and_async_nodes_are_halves() {
        let plan = plan(json!({
            "nodes": { "a": { "type": "Sync" }, "q": { "type": "Queue" }, "z": { "type": "Sync" } },
            "edges": [
                { "from": "a", "to": "q", "out": 0, "in": 0 },
                { "from": "q", "to": "z", "out": 0, "in": 0 }
            ]
        }));
        assert_eq!(
            plan.to_dot(),
            r#"digraph holoflow_compiled {
  // streams: 0
  // tasks: 2 sync, 1 async
  rankdir=LR;
  node [shape=box];
  subgraph cluster_0 {
    label="Section 0: section 0";
    n0s [label="a\n[Sync]\n-> t0"];
    n1p [label="q\n[Queue]\npush side\nt0 ->"];
  }
  subgraph cluster_1 {
    label="Section 1: section 1";
    n1c [label="q\n[Queue]\npop side\n-> t1"];
    n2s [label="z\n[Sync]\nt1 -> t2"];
  }
  n1p -> n1c [style=dotted arrowhead=none];
  n0s -> n1p [label="t0 s0\nU8[4]@Host" taillabel="0" headlabel="0"];
  n1c -> n2s [label="t1 s1\nU8[4]@Host" taillabel="0" headlabel="0"];
}
"#
        );
    }

    #[test]
    fn d_05_outputs_that_share_storage_are_marked_and_the_border_is_drawn() {
        let dot = plan(json!({
            "nodes": { "a": { "type": "Sync" }, "b": { "type": "Sync" } },
            "edges": [ { "from": "a", "to": "b", "out": 0, "in": 0 } ],
            "outputs": { "y": { "from": "b", "out": 0 } }
        }))
        .to_dot();
        assert!(dot.contains(r#"o0 [label="y" style=rounded];"#), "{dot}");
        let edge = r#"n1s -> o0 [label="t1 s0\nU8[4]@Host\n(overwrites input 0)" taillabel="0"];"#;
        assert!(dot.contains(edge), "{dot}");
    }

    #[test]
    fn d_06_settings_are_on_one_line_and_cut() {
        let long = "x".repeat(400);
        let dot = plan(json!({
            "nodes": {
                "a": { "type": "Sync", "params": { "text": long } },
                "b": { "type": "Sync", "params": { "n": 1 } },
                "c": { "type": "Sync", "params": { "n": 2 }, "debug": false }
            }
        }))
        .to_dot();
        let cut = format!(
            r#"\n{{\"text\":\"{}…"];"#,
            "x".repeat(300 - r#"{"text":""#.len())
        );
        assert!(dot.contains(&cut), "{dot}");
        assert!(
            dot.contains(r#"n1s [label="b\n[Sync]\n-> t1\n{\"n\":1}"];"#),
            "{dot}"
        );
        assert!(dot.contains(r#"n2s [label="c\n[Sync]\n-> t2"];"#), "{dot}");
    }

    #[test]
    fn d_07_an_empty_plan_still_renders() {
        assert_eq!(
            plan(json!({ "nodes": {} })).to_dot(),
            "digraph holoflow_compiled {\n  // streams: 0\n  // tasks: 0 sync, 0 async\n  \
             rankdir=LR;\n  node [shape=box];\n}\n"
        );
    }
}
