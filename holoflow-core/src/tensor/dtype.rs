//! Element types, as numbers and as the names that graph files use.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::TensorError;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident $size:literal $align:literal,)*) => {
        /// Type of a tensor's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$doc])* $name,)*
        }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Name, as graph files write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Bytes of one element.
            #[must_use]
            pub const fn size(self) -> usize {
                match self { $(Self::$name => $size,)* }
            }

            /// Alignment of one element in bytes; for complex numbers that of a component.
            #[must_use]
            pub const fn align(self) -> usize {
                match self { $(Self::$name => $align,)* }
            }
        }
    };
}

dtypes! {
    /// One byte, viewed as `u8`: zero is false.
    Bool 1 1,
    /// Unsigned, 8 bits.
    U8 1 1,
    /// Signed, 8 bits.
    I8 1 1,
    /// Unsigned, 16 bits.
    U16 2 2,
    /// Signed, 16 bits.
    I16 2 2,
    /// Unsigned, 32 bits.
    U32 4 4,
    /// Signed, 32 bits.
    I32 4 4,
    /// Unsigned, 64 bits.
    U64 8 8,
    /// Signed, 64 bits.
    I64 8 8,
    /// IEEE 754 half precision.
    F16 2 2,
    /// The upper half of an `F32`.
    BF16 2 2,
    /// IEEE 754 single precision.
    F32 4 4,
    /// IEEE 754 double precision.
    F64 8 8,
    /// Complex, real part first, two `F32`.
    CF32 8 4,
    /// Complex, real part first, two `F64`.
    CF64 16 8,
}

impl DType {
    /// The type whose elements views of this one show: `U8` for `Bool`, else itself.
    #[must_use]
    pub const fn viewed_as(self) -> Self {
        match self {
            Self::Bool => Self::U8,
            other => other,
        }
    }

    /// Whether elements are complex numbers.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::CF32 | Self::CF64)
    }

    /// Whether elements are real floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// Whether elements are whole numbers.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !matches!(self, Self::Bool) && !self.is_float() && !self.is_complex()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = TensorError;

    fn from_str(text: &str) -> Result<Self, TensorError> {
        if let Some(dtype) = Self::ALL.iter().find(|dtype| dtype.name() == text) {
            return Ok(*dtype);
        }
        let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
        Err(TensorError::UnknownDType {
            found: text.to_owned(),
            nearest: crate::text::nearest(text, names.iter().copied()),
            known: names.join(", "),
        })
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl JsonSchema for DType {
    fn schema_name() -> Cow<'static, str> {
        "DType".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_01_element_sizes_and_names() {
        use DType::*;
        let sizes = [
            (Bool, 1),
            (U8, 1),
            (I8, 1),
            (U16, 2),
            (I16, 2),
            (U32, 4),
            (I32, 4),
            (U64, 8),
            (I64, 8),
            (F16, 2),
            (BF16, 2),
            (F32, 4),
            (F64, 8),
            (CF32, 8),
            (CF64, 16),
        ];
        assert_eq!(sizes.len(), DType::ALL.len());
        for (dtype, size) in sizes {
            assert_eq!(dtype.size(), size, "{dtype}");
            assert_eq!(dtype.to_string().parse::<DType>().unwrap(), dtype);
            let json = serde_json::to_value(dtype).unwrap();
            assert_eq!(json, serde_json::json!(format!("{dtype:?}")));
            assert_eq!(serde_json::from_value::<DType>(json).unwrap(), dtype);
        }
    }

    #[test]
    fn t_13_unknown_dtype_text_is_an_error_with_a_near_match() {
        let error = serde_json::from_str::<DType>("\"u16\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("unknown element type `u16` (did you mean `U16`?)"),
            "{error}"
        );
    }

    #[test]
    fn every_type_is_of_one_class() {
        for dtype in DType::ALL {
            let classes = [dtype.is_complex(), dtype.is_float(), dtype.is_integer()];
            let count = classes.iter().filter(|class| **class).count();
            assert_eq!(count, usize::from(*dtype != DType::Bool), "{dtype}");
        }
    }
}
