//! `--set NODE.SETTING=VALUE` and `--option KEY=VALUE`: what of a graph file is changed before
//! it is run.
//!
//! A value is JSON, or else a string: `25`, `true`, `[1,2]`, `spacing`. What it means is left to
//! the compiler and the task, who refuse it in the same words as one that is in the file.
//!
//! Invariants, each with a test whose name begins with its number:
//!
//! - **AS1** Of all nodes whose names an assignment begins with, it is to the one with the
//!   longest name: names may hold dots, slashes and equals signs.
//! - **AS2** A name that nobody knows is refused, with a near match; nothing is run then.

use std::borrow::Cow;
use std::fmt;

use holoflow_core::graph::{GraphErrors, GraphSpec, GraphWarning, NodeSpec, flatten};
use serde_json::{Map, Value, json};

/// `NODE.SETTING=VALUE`.
#[derive(Debug, Clone)]
pub(super) struct Setting(String);

/// `KEY=VALUE`.
#[derive(Debug, Clone)]
pub(super) struct RootOption {
    key: String,
    value: Value,
}

/// Why something cannot be set; `{}` begins with the argument.
#[derive(Debug)]
pub(super) enum AssignError {
    /// The graph has errors of its own.
    Graph(GraphErrors),
    /// The first name is not that of a node.
    UnknownNode {
        argument: String,
        found: String,
        nearest: Option<String>,
    },
    /// There is no such option.
    UnknownOption {
        key: String,
        nearest: Option<String>,
    },
    /// The settings have something else where the argument goes on.
    Inside {
        argument: String,
        place: String,
        found: String,
        expected: String,
    },
}

/// A setting has to be named and given a value.
pub(super) fn setting(text: &str) -> Result<Setting, String> {
    let left = text.split_once('=').map(|(left, _)| left);
    if !left.is_some_and(|left| left.contains('.')) {
        return Err("expected NODE.SETTING=VALUE".to_owned());
    }
    Ok(Setting(text.to_owned()))
}

/// An option has to be named and given a value.
pub(super) fn option(text: &str) -> Result<RootOption, String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok(RootOption {
        key: key.to_owned(),
        value: json_or_text(value),
    })
}

fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The graph with all that was set.
///
/// # Errors
/// All that cannot be set.
pub(super) fn assign(
    mut graph: GraphSpec,
    settings: &[Setting],
    options: &[RootOption],
) -> Result<GraphSpec, Vec<AssignError>> {
    let mut errors = Vec::new();
    for option in options {
        if let Err(error) = option.check() {
            errors.push(error);
        }
        graph
            .options
            .insert(option.key.clone(), option.value.clone());
    }
    // The nodes of subgraphs have names only where these are put in place. That is done only if
    // one is set, so that what the compiler says otherwise has its place in the file.
    let is_inside = |setting: &Setting, flat: &GraphSpec| {
        let inside = setting.node(&flat.nodes).map(str::len);
        inside > setting.node(&graph.nodes).map(str::len)
    };
    if !settings.is_empty() {
        let flat = match flatten(&graph) {
            Ok(flat) => flat.spec,
            Err(error) => {
                errors.push(AssignError::Graph(error));
                return Err(errors);
            }
        };
        if settings.iter().any(|setting| is_inside(setting, &flat))
            && let Cow::Owned(flat) = flat
        {
            graph = flat;
        }
    }
    for setting in settings {
        if let Err(error) = setting.apply(&mut graph) {
            errors.push(error);
        }
    }
    if errors.is_empty() {
        Ok(graph)
    } else {
        Err(errors)
    }
}

impl RootOption {
    /// Whether there is such an option: a file that has it is read without a warning.
    fn check(&self) -> Result<(), AssignError> {
        let file = json!({ "nodes": {}, "options": { self.key.as_str(): self.value } });
        let (_, warnings) = GraphSpec::from_json(&file).map_err(AssignError::Graph)?;
        match warnings.into_iter().next() {
            None => Ok(()),
            Some(warning) => Err(AssignError::UnknownOption {
                key: self.key.clone(),
                nearest: match warning {
                    GraphWarning::UnknownKey { nearest, .. } => nearest,
                    _ => None,
                },
            }),
        }
    }
}

impl Setting {
    /// The longest name of a node that it begins with.
    fn node<'n>(&self, nodes: &'n [NodeSpec]) -> Option<&'n str> {
        let names = nodes.iter().map(|node| node.name.as_str());
        let begins = |name: &&str| {
            let rest = self.0.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('.') && rest.contains('='))
        };
        names.filter(begins).max_by_key(|name| name.len())
    }

    /// The argument up to its value, as it is called in messages.
    fn argument(&self, path: &str) -> String {
        format!("--set {path}")
    }

    fn unknown(&self, graph: &GraphSpec) -> AssignError {
        let path = self.0.split('=').next().unwrap_or(&self.0);
        let flat = flatten(graph).map(|flat| flat.spec);
        let flat = flat.unwrap_or(Cow::Borrowed(graph));
        let nodes = graph.nodes.iter().chain(&flat.nodes);
        let names: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
        // Where the name ends is not known either.
        let ends = path.match_indices('.').map(|(dot, _)| &path[..dot]);
        let near = ends
            .filter_map(|found| nearest(found, &names).map(|(by, name)| (by, found, name)))
            .min_by_key(|(by, ..)| *by);
        let first = path.split('.').next().unwrap_or(path);
        AssignError::UnknownNode {
            argument: self.argument(path),
            found: near.map_or(first, |(_, found, _)| found).to_owned(),
            nearest: near.map(|(.., name)| name.to_owned()),
        }
    }

    fn apply(&self, graph: &mut GraphSpec) -> Result<(), AssignError> {
        let Some(name) = self.node(&graph.nodes).map(str::to_owned) else {
            return Err(self.unknown(graph));
        };
        let rest = &self.0[name.len() + 1..];
        // `node` has seen that there is one.
        let (path, value) = rest.split_once('=').unwrap_or((rest, ""));
        let argument = self.argument(&format!("{name}.{path}"));
        let Some(node) = graph.nodes.iter_mut().find(|node| node.name == name) else {
            return Err(self.unknown(graph));
        };
        if node.settings.is_null() {
            node.settings = Value::Object(Map::new());
        }
        let mut target = &mut node.settings;
        let mut done = 0;
        for key in path.split('.') {
            let inside = |found: &Value, expected: &str| AssignError::Inside {
                argument: argument.clone(),
                place: path[..done].trim_end_matches('.').to_owned(),
                found: found.to_string(),
                expected: expected.to_owned(),
            };
            target = match target {
                Value::Object(settings) => settings.entry(key).or_insert(Value::Null),
                Value::Array(list) => {
                    let index = key.parse::<usize>().ok();
                    let index = index.filter(|index| *index < list.len());
                    let Some(index) = index else {
                        let expected = format!("a list with an element `{key}`");
                        return Err(inside(&Value::Array(list.clone()), &expected));
                    };
                    &mut list[index]
                }
                Value::Null => {
                    *target = Value::Object(Map::new());
                    match target {
                        Value::Object(settings) => settings.entry(key).or_insert(Value::Null),
                        other => return Err(inside(other, "an object")),
                    }
                }
                other => return Err(inside(other, "an object")),
            };
            done += key.len() + 1;
        }
        *target = json_or_text(value);
        Ok(())
    }
}

/// The name nearest to `found`, if one is near: at most a third of its letters differ.
fn nearest<'n>(found: &str, names: &[&'n str]) -> Option<(usize, &'n str)> {
    let found = found.to_lowercase();
    names
        .iter()
        .map(|name| (strsim::osa_distance(&found, &name.to_lowercase()), *name))
        .filter(|(by, name)| *by <= name.chars().count().div_ceil(3))
        .min_by_key(|(by, _)| *by)
}

impl fmt::Display for AssignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = match self {
            Self::Graph(errors) => return write!(f, "{errors}"),
            Self::Inside {
                argument,
                place,
                found,
                expected,
            } => {
                let of = if place.is_empty() {
                    "the settings are".to_owned()
                } else {
                    format!("`{place}` is")
                };
                return write!(f, "{argument}: {of} {found}, expected {expected}");
            }
            Self::UnknownNode {
                argument,
                found,
                nearest,
            } => {
                write!(
                    f,
                    "{argument}: found `{found}`, expected the name of a node"
                )?;
                nearest
            }
            Self::UnknownOption { key, nearest } => {
                write!(
                    f,
                    "--option {key}: found `{key}`, expected the name of an option"
                )?;
                nearest
            }
        };
        match nearest {
            Some(name) => write!(f, ": did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}
