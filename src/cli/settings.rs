//! A JSON Schema of settings as rows of a table: name, type, default, description.
//!
//! Settings within settings have names with dots (`roi.width`), those of a list's elements
//! names with brackets (`rois[].width`). What the schema says beyond that is left to
//! `tasks --json`.

use serde_json::Value;

/// Settings within settings are listed to this depth, and once within themselves.
const DEPTH: usize = 4;

/// References in a row that are followed.
const REFERENCES: usize = 8;

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) ty: String,
    /// As JSON; "required" without one, and "-" if there is neither.
    pub(super) default: String,
    pub(super) description: String,
}

/// The settings that `schema` describes.
pub(super) fn rows(schema: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    Table { root: schema }.add(schema, "", &mut Vec::new(), &mut rows);
    rows
}

/// The type that `schema` describes, for settings that are no object.
pub(super) fn type_of(schema: &Value) -> String {
    Table { root: schema }.ty(schema, DEPTH)
}

struct Table<'s> {
    /// What references are relative to.
    root: &'s Value,
}

impl<'s> Table<'s> {
    /// Adds the settings in `schema`, which is within the schemas of `path`.
    fn add(&self, schema: &'s Value, prefix: &str, path: &mut Vec<&'s Value>, rows: &mut Vec<Row>) {
        let schema = self.resolve(schema);
        if path.len() > DEPTH || path.iter().any(|outer| std::ptr::eq(*outer, schema)) {
            return;
        }
        path.push(schema);
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        for (key, property) in properties.into_iter().flatten() {
            let name = format!("{prefix}{key}");
            let needed = required.is_some_and(|keys| keys.iter().any(|found| found == key));
            rows.push(Row {
                ty: self.ty(property, DEPTH),
                default: match property.get("default") {
                    Some(default) => default.to_string(),
                    None if needed => "required".to_owned(),
                    None => "-".to_owned(),
                },
                description: self.description(property),
                name: name.clone(),
            });
            let (inner, brackets) = self.inner(property);
            self.add(inner, &format!("{name}{brackets}."), path, rows);
        }
        path.pop();
    }

    /// What `schema` refers to.
    fn resolve(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..REFERENCES {
            let reference = schema.get("$ref").and_then(Value::as_str);
            let pointer = reference.and_then(|reference| reference.strip_prefix('#'));
            match pointer.and_then(|pointer| self.root.pointer(pointer)) {
                Some(found) => schema = found,
                None => break,
            }
        }
        schema
    }

    /// The object or list element in a property, and what its name takes for it.
    fn inner(&self, property: &'s Value) -> (&'s Value, &'static str) {
        let property = self.present(self.resolve(property));
        match property.get("items") {
            Some(items) => (self.present(self.resolve(items)), "[]"),
            None => (property, ""),
        }
    }

    /// The other one of a choice between null and something.
    fn present(&self, schema: &'s Value) -> &'s Value {
        let choices = schema.get("anyOf").and_then(Value::as_array);
        match choices.map(Vec::as_slice) {
            Some([one, null] | [null, one]) if null["type"] == "null" => self.resolve(one),
            _ => schema,
        }
    }

    fn description(&self, property: &'s Value) -> String {
        let own = property.get("description");
        let text = own.or_else(|| self.resolve(property).get("description"));
        let text = text.and_then(Value::as_str).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn ty(&self, schema: &'s Value, depth: usize) -> String {
        let schema = self.resolve(schema);
        if let Some(value) = schema.get("const") {
            return value.to_string();
        }
        for choices in ["enum", "oneOf", "anyOf"] {
            if let Some(choices) = schema.get(choices).and_then(Value::as_array) {
                // The elements of `enum` are values, of the others schemas.
                let mut names: Vec<String> = Vec::new();
                for choice in choices {
                    let name = match choice {
                        Value::Object(_) if depth > 0 => self.ty(choice, depth - 1),
                        Value::Object(_) => "object".to_owned(),
                        value => value.to_string(),
                    };
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                return names.join(" | ");
            }
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.named(name, schema, depth),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                let names: Vec<_> = names.map(|name| self.named(name, schema, depth)).collect();
                names.join(" | ")
            }
            _ => match schema.get("allOf").and_then(Value::as_array) {
                Some(parts) if depth > 0 && parts.len() == 1 => self.ty(&parts[0], depth - 1),
                _ => "any".to_owned(),
            },
        }
    }

    fn named(&self, name: &str, schema: &'s Value, depth: usize) -> String {
        let within = |key| schema.get(key).filter(|_| depth > 0);
        match name {
            "integer" | "number" => format!("{name}{}", range(schema)),
            "array" => match within("items") {
                Some(items) if items.is_object() => {
                    format!("list of {}", self.ty(items, depth - 1))
                }
                _ => "list".to_owned(),
            },
            "object" => match within("additionalProperties") {
                Some(values) if values.is_object() => {
                    format!("object of {}", self.ty(values, depth - 1))
                }
                _ => "object".to_owned(),
            },
            name => name.to_owned(),
        }
    }
}

/// From where to where a number may be.
fn range(schema: &Value) -> String {
    let bound = |closed: &str, open: &str| {
        let closed = schema.get(closed).map(|bound| (bound, true));
        closed.or_else(|| schema.get(open).map(|bound| (bound, false)))
    };
    let low = bound("minimum", "exclusiveMinimum");
    let high = bound("maximum", "exclusiveMaximum");
    let low = low.map(|(low, closed)| match closed {
        true => format!(" from {}", short(low)),
        false => format!(" above {}", short(low)),
    });
    let high = high.map(|(high, closed)| match closed {
        true => format!(" to {}", short(high)),
        false => format!(" below {}", short(high)),
    });
    low.unwrap_or_default() + &high.unwrap_or_default()
}

/// A number without the zeros that JSON writes.
fn short(number: &Value) -> String {
    match number.as_f64() {
        Some(found) if number.is_f64() => {
            let (plain, scientific) = (found.to_string(), format!("{found:e}"));
            if plain.len() > 6 && scientific.len() < plain.len() {
                scientific
            } else {
                plain
            }
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only described")]
    struct Settings {
        /// How many,
        /// in all.
        count: u32,
        #[serde(default)]
        gain: Option<f32>,
        /// Which part.
        #[serde(default)]
        roi: Option<Roi>,
        rois: Vec<Roi>,
        #[serde(default)]
        mode: Mode,
        names: BTreeMap<String, Vec<bool>>,
        pair: (u8, String),
        how: How,
        any: Value,
        tree: Tree,
        #[schemars(range(max = 1.5))]
        limit: f64,
        #[schemars(extend("exclusiveMinimum" = 0))]
        rate: f64,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only described")]
    struct Roi {
        /// In pixels.
        width: u16,
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        /// Soon.
        #[default]
        Fast,
        /// Right.
        Exact,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only described")]
    enum How {
        Plain,
        Scaled { factor: f64 },
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[allow(dead_code, reason = "only described")]
    struct Tree {
        trees: Vec<Tree>,
    }

    fn lines(schema: &Value) -> Vec<String> {
        let rows = rows(schema);
        rows.iter()
            .map(|row| {
                format!(
                    "{}: {}, {}, {}",
                    row.name, row.ty, row.default, row.description
                )
            })
            .collect()
    }

    #[test]
    fn every_setting_is_a_row_with_type_default_and_description() {
        let mut lines = lines(schemars::schema_for!(Settings).as_value());
        lines.sort();
        let expected = [
            "any: any, required, ",
            "count: integer from 0, required, How many, in all.",
            "gain: number | null, null, ",
            "how: \"Plain\" | object, required, ",
            "limit: number to 1.5, required, ",
            "mode: \"fast\" | \"exact\", \"fast\", ",
            "names: object of list of boolean, required, ",
            "pair: list, required, ",
            "rate: number above 0, required, ",
            "roi.width: integer from 0 to 65535, required, In pixels.",
            "roi: object | null, null, Which part.",
            "rois: list of object, required, ",
            "rois[].width: integer from 0 to 65535, required, In pixels.",
            "tree.trees: list of object, required, ",
            "tree: object, required, ",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_schema_by_hand_is_read_as_far_as_it_goes() {
        let schema = json!({ "properties": {
            "absent": { "$ref": "#/$defs/absent" },
            "around": { "$ref": "#/properties/around" },
            "b": { "type": "number", "minimum": 1e-6, "maximum": 1e9 },
            "below": { "type": "integer", "exclusiveMaximum": 7 },
            "const": { "const": [1] },
            "either": { "enum": [1, "a", null] },
            "one": { "allOf": [{ "type": "string" }] },
            "no": true,
        } });
        let expected = [
            "absent: any, -, ",
            "around: any, -, ",
            "b: number from 1e-6 to 1e9, -, ",
            "below: integer below 7, -, ",
            "const: [1], -, ",
            "either: 1 | \"a\" | null, -, ",
            "no: any, -, ",
            "one: string, -, ",
        ];
        let mut found = lines(&schema);
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(lines(&json!(true)), [""; 0]);
        assert_eq!(
            type_of(&json!({ "type": ["string", "null"] })),
            "string | null"
        );
    }
}
