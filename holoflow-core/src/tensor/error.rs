//! Why a tensor cannot be described.

/// Why a descriptor, or a part of one, cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Elements or bytes are more than an address range can hold.
    #[error("a tensor of shape {shape:?} and {dtype} elements is larger than memory can be")]
    Overflow {
        /// The shape asked for.
        shape: Vec<usize>,
        /// Name of the element type.
        dtype: &'static str,
    },
    /// Not one stride for each axis.
    #[error("found {found} strides for a shape of rank {expected}, expected one for each axis")]
    StrideRank {
        /// Strides given.
        found: usize,
        /// Rank of the shape.
        expected: usize,
    },
    /// No such element type.
    #[error("unknown element type `{found}`{}, expected one of {known}", hint(.nearest))]
    UnknownDType {
        /// The text found.
        found: String,
        /// The names there are.
        known: String,
        /// The nearest of them.
        nearest: Option<&'static str>,
    },
    /// No such memory location.
    #[error(
        "unknown memory location `{found}`, expected `Host`, `HostPinned`, `Device` or \
         `Device:` with a number"
    )]
    UnknownLocation {
        /// The text found.
        found: String,
    },
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

#[cfg(test)]
mod tests {
    use crate::tensor::{DType, MemLoc, TDesc};

    #[test]
    fn each_message_says_what_was_found_and_expected() {
        let overflow = TDesc::new([usize::MAX, 2], DType::U8, MemLoc::Host).unwrap_err();
        assert_eq!(
            overflow.to_string(),
            format!(
                "a tensor of shape [{}, 2] and U8 elements is larger than memory can be",
                usize::MAX
            )
        );
        let strides = TDesc::with_layout([2, 3], DType::U8, MemLoc::Host, [1], 0).unwrap_err();
        assert_eq!(
            strides.to_string(),
            "found 1 strides for a shape of rank 2, expected one for each axis"
        );
        let dtype = "f32".parse::<DType>().unwrap_err();
        assert_eq!(
            dtype.to_string(),
            "unknown element type `f32` (did you mean `F32`?), expected one of Bool, U8, I8, U16, \
             I16, U32, I32, U64, I64, F16, BF16, F32, F64, CF32, CF64"
        );
        let location = "GPU".parse::<MemLoc>().unwrap_err();
        assert_eq!(
            location.to_string(),
            "unknown memory location `GPU`, expected `Host`, `HostPinned`, `Device` or `Device:` \
             with a number"
        );
    }
}
