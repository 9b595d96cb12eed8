//! Keys that are in an object twice.
//!
//! The parser's values keep the last of them without a word, so the text is walked once
//! more. The walk keeps no values.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::super::GraphError;
use super::super::place::{child, element};

/// Adds an error for every key of `text`, which is JSON, that its object has already.
pub(super) fn find_duplicates(text: &str, errors: &mut Vec<GraphError>) {
    let mut place = Vec::new();
    let walk = Walk {
        place: &mut place,
        errors,
    };
    // A text that the parser does not take was refused before.
    let _ = walk.deserialize(&mut serde_json::Deserializer::from_str(text));
}

enum Step {
    Key(String),
    Index(usize),
}

struct Walk<'w> {
    place: &'w mut Vec<Step>,
    errors: &'w mut Vec<GraphError>,
}

impl Walk<'_> {
    fn inner(&mut self) -> Walk<'_> {
        Walk {
            place: self.place,
            errors: self.errors,
        }
    }

    fn place(&self) -> String {
        self.place
            .iter()
            .fold(String::new(), |place, step| match step {
                Step::Key(key) => child(&place, key),
                Step::Index(index) => element(&place, *index),
            })
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            self.place.push(Step::Index(index));
            let more = seq.next_element_seed(self.inner())?;
            self.place.pop();
            if more.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let doubled = seen.contains(&key);
            self.place.push(Step::Key(key));
            if doubled {
                let place = self.place();
                self.errors.push(GraphError::DuplicateKey { place });
            }
            map.next_value_seed(self.inner())?;
            if let Some(Step::Key(key)) = self.place.pop() {
                seen.insert(key);
            }
        }
        Ok(())
    }
}
