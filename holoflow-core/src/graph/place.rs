//! Where something is in a description, as text: `nodes.fft.type`, `edges[3].from`.
//!
//! A place is a path of keys and indices from the root. A key that would be misread, such
//! as one with a dot in it, is written in brackets and quotes: `nodes["a.b"].type`. The
//! root has the empty path and is called "the document".

use serde_json::Value;

/// Longest text of a value in a message, in characters.
const SHOWN: usize = 60;

/// The place of `key` in the object at `place`.
pub(crate) fn child(place: &str, key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | ':');
    if key.is_empty() || !key.chars().all(plain) {
        format!("{place}[{key:?}]")
    } else if place.is_empty() {
        key.to_owned()
    } else {
        format!("{place}.{key}")
    }
}

/// The place of `key` in the object `object` in the object at `place`.
pub(crate) fn grandchild(place: &str, object: &str, key: &str) -> String {
    child(&child(place, object), key)
}

/// The place of element `index` of the array at `place`.
pub(crate) fn element(place: &str, index: usize) -> String {
    format!("{place}[{index}]")
}

/// How messages call a place.
pub(crate) fn called(place: &str) -> &str {
    if place.is_empty() {
        "the document"
    } else {
        place
    }
}

/// A value as messages show it: cut if it is long.
pub(crate) fn shown(value: &Value) -> String {
    cut(value.to_string())
}

/// A name as messages show it: in quotes if it is a name, cut if it is long.
pub(crate) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_and_odd_keys_are_quoted() {
        let nodes = child("", "nodes");
        assert_eq!(child(&child(&nodes, "fft"), "type"), "nodes.fft.type");
        assert_eq!(child(&nodes, "a:1"), "nodes.a:1");
        assert_eq!(child(&nodes, "a.b"), r#"nodes["a.b"]"#);
        assert_eq!(child(&nodes, "say \"x\"\n"), r#"nodes["say \"x\"\n"]"#);
        assert_eq!(child(&nodes, ""), r#"nodes[""]"#);
        assert_eq!(child("", "a b"), r#"["a b"]"#);
        assert_eq!(child(&element("edges", 3), "from"), "edges[3].from");
        assert_eq!(called(""), "the document");
    }

    #[test]
    fn a_long_value_is_cut() {
        let text = shown(&Value::from("é".repeat(100)));
        assert_eq!(text.chars().count(), SHOWN + 1);
        assert!(text.ends_with('…'));
    }
}
