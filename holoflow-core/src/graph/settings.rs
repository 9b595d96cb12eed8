//! Settings structs as JSON, with nothing lost.
//!
//! The JSON library writes a number that is none, or is infinite, as null, and says of a
//! value that cannot be written not where it is. So settings are walked first, with a
//! serializer that writes nothing and knows its place.

use std::fmt;

use serde::{Serialize, Serializer, ser};
use serde_json::Value;

use super::GraphError;
use super::place::{child, element};

/// `settings` as JSON. `place` is where they go, for errors.
///
/// # Errors
/// One for each number that JSON cannot hold; or why the value cannot be written.
pub(super) fn to_json(settings: &impl Serialize, place: &str) -> Result<Value, Vec<GraphError>> {
    let mut walk = Walk {
        place: place.to_owned(),
        errors: Vec::new(),
    };
    if let Err(Failed(problem)) = settings.serialize(&mut walk) {
        // The place is that of the failure: a walk that fails does not step back.
        let place = walk.place;
        let found = format!("one that is not written: {problem}");
        walk.errors.push(GraphError::NoJson { place, found });
    }
    if !walk.errors.is_empty() {
        return Err(walk.errors);
    }
    serde_json::to_value(settings).map_err(|error| {
        let found = format!("one that is not written: {error}");
        let place = place.to_owned();
        vec![GraphError::NoJson { place, found }]
    })
}

struct Walk {
    place: String,
    errors: Vec<GraphError>,
}

#[derive(Debug)]
struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl ser::Error for Failed {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Done = Result<(), Failed>;

impl Walk {
    fn at(&mut self, place: String, value: &(impl Serialize + ?Sized)) -> Done {
        let around = std::mem::replace(&mut self.place, place);
        value.serialize(&mut *self)?;
        self.place = around;
        Ok(())
    }

    fn float(&mut self, value: f64) -> Done {
        if !value.is_finite() {
            self.errors.push(GraphError::NoJson {
                place: self.place.clone(),
                found: value.to_string(),
            });
        }
        Ok(())
    }
}

macro_rules! nothing {
    ($($method:ident($ty:ty)),* $(,)?) => {$(
        fn $method(self, _: $ty) -> Done {
            Ok(())
        }
    )*};
}

impl<'w> Serializer for &'w mut Walk {
    type Ok = ();
    type Error = Failed;
    type SerializeSeq = Parts<'w>;
    type SerializeTuple = Parts<'w>;
    type SerializeTupleStruct = Parts<'w>;
    type SerializeTupleVariant = Parts<'w>;
    type SerializeMap = Parts<'w>;
    type SerializeStruct = Parts<'w>;
    type SerializeStructVariant = Parts<'w>;

    nothing! {
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    }

    fn serialize_i128(self, value: i128) -> Done {
        if i64::try_from(value).is_err() && u64::try_from(value).is_err() {
            return Err(Failed(format!("{value} is out of range")));
        }
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Done {
        if u64::try_from(value).is_err() {
            return Err(Failed(format!("{value} is out of range")));
        }
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.float(value.into())
    }

    fn serialize_f64(self, value: f64) -> Done {
        self.float(value)
    }

    fn serialize_none(self) -> Done {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Done {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        let place = child(&self.place, variant);
        self.at(place, value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'w>, Failed> {
        Ok(Parts::of(self, Some(variant)))
    }
}

/// The parts of a compound value.
struct Parts<'w> {
    walk: &'w mut Walk,
    place: String,
    index: usize,
    key: String,
}

impl<'w> Parts<'w> {
    fn of(walk: &'w mut Walk, variant: Option<&str>) -> Self {
        let place = match variant {
            Some(variant) => child(&walk.place, variant),
            None => walk.place.clone(),
        };
        Self {
            walk,
            place,
            index: 0,
            key: String::new(),
        }
    }

    fn element(&mut self, value: &(impl Serialize + ?Sized)) -> Done {
        let place = element(&self.place, self.index);
        self.index += 1;
        self.walk.at(place, value)
    }

    fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Done {
        self.walk.at(child(&self.place, key), value)
    }
}

macro_rules! sequences {
    ($($sequence:ident $method:ident),* $(,)?) => {$(
        impl ser::$sequence for Parts<'_> {
            type Ok = ();
            type Error = Failed;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
                self.element(value)
            }

            fn end(self) -> Done {
                Ok(())
            }
        }
    )*};
}

sequences! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

macro_rules! structs {
    ($($shape:ident),* $(,)?) => {$(
        impl ser::$shape for Parts<'_> {
            type Ok = ();
            type Error = Failed;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Done {
                self.field(key, value)
            }

            fn end(self) -> Done {
                Ok(())
            }
        }
    )*};
}

structs!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Failed;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.key = match serde_json::to_value(key) {
            Ok(Value::String(key)) => key,
            Ok(key) => key.to_string(),
            Err(error) => return Err(Failed(error.to_string())),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        let key = std::mem::take(&mut self.key);
        self.field(&key, value)
    }

    fn end(self) -> Done {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    struct Settings {
        gain: f64,
        steps: Vec<(u8, f32)>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'static str>,
        mode: Mode,
        map: BTreeMap<String, f64>,
    }

    #[derive(Serialize)]
    enum Mode {
        Fast,
        Slow { factor: f64 },
        Pair(f64, f64),
        One(f64),
    }

    fn settings(mode: Mode) -> Settings {
        Settings {
            gain: 0.1,
            steps: vec![(1, 2.0)],
            name: None,
            mode,
            map: BTreeMap::from([("a b".to_owned(), 1.0)]),
        }
    }

    fn messages(value: &impl Serialize) -> String {
        let errors = to_json(value, "nodes.x.params").unwrap_err();
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        errors.join("\n")
    }

    #[test]
    fn settings_are_written_as_they_are() {
        assert_eq!(
            to_json(&settings(Mode::Fast), "").unwrap(),
            json!({ "gain": 0.1, "steps": [[1, 2.0]], "mode": "Fast", "map": { "a b": 1.0 } })
        );
        assert_eq!(to_json(&(), "").unwrap(), Value::Null);
        assert_eq!(
            to_json(&Some(json!([1, null])), "").unwrap(),
            json!([1, null])
        );
        assert_eq!(to_json(&u64::MAX, "").unwrap(), json!(u64::MAX));
    }

    #[test]
    fn every_number_that_json_cannot_hold_is_named() {
        let mut value = settings(Mode::Slow {
            factor: f64::INFINITY,
        });
        value.gain = f64::NAN;
        value.steps.push((2, f32::NEG_INFINITY));
        value.map.insert("a b".into(), f64::NAN);
        let wanted = "expected a value that JSON can hold";
        assert_eq!(
            messages(&value),
            format!(
                "nodes.x.params.gain: found NaN, {wanted}\n\
                 nodes.x.params.steps[1][1]: found -inf, {wanted}\n\
                 nodes.x.params.mode.Slow.factor: found inf, {wanted}\n\
                 nodes.x.params.map[\"a b\"]: found NaN, {wanted}"
            )
        );
        assert!(messages(&Mode::Pair(0.0, f64::NAN)).contains("params.Pair[1]: found NaN"));
        assert!(messages(&Mode::One(f64::NAN)).contains("params.One: found NaN"));
        assert!(messages(&f64::NAN).starts_with("nodes.x.params: found NaN"));
    }

    #[test]
    fn a_value_that_is_not_written_is_named() {
        struct Broken;
        impl Serialize for Broken {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(ser::Error::custom("it is locked"))
            }
        }
        #[derive(Serialize)]
        struct Outer {
            list: Vec<Broken>,
        }
        assert_eq!(
            messages(&Outer { list: vec![Broken] }),
            "nodes.x.params.list[0]: found one that is not written: it is locked, expected a \
             value that JSON can hold"
        );
        assert!(messages(&u128::MAX).contains("is out of range"));
        assert!(messages(&BTreeMap::from([(vec![1], 1)])).contains("key must be a string"));
    }
}
