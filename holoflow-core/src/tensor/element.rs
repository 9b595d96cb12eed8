//! The Rust types that elements are read and written as.

use std::fmt::Debug;

use half::{bf16, f16};
use num_complex::Complex;

use super::DType;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that a tensor's elements are viewed as.
///
/// The storage layer makes slices of it from bytes, and relies on this: it has no padding,
/// every bit pattern is a value, its size is that of [`DTYPE`](Self::DTYPE) and its
/// alignment at most that. Sealing upholds it: no other crate can add a type.
///
/// [`DType::Bool`] is viewed as `u8`, since not every byte is a `bool`.
///
/// ```compile_fail,E0277
/// use holoflow_core::tensor::{DType, Element};
///
/// #[derive(Clone, Copy, Default, PartialEq, Debug)]
/// struct Mine(bool);
/// impl Element for Mine {
///     const DTYPE: DType = DType::U8;
/// }
/// ```
pub trait Element:
    sealed::Sealed + Copy + Default + PartialEq + Debug + Send + Sync + 'static
{
    /// The element type of tensors that are viewed as this.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident,)*) => {$(
        impl sealed::Sealed for $ty {}

        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }

        const _: () = assert!(size_of::<$ty>() == DType::$dtype.size());
        const _: () = assert!(align_of::<$ty>() <= DType::$dtype.align());
    )*};
}

elements! {
    u8 => U8,
    i8 => I8,
    u16 => U16,
    i16 => I16,
    u32 => U32,
    i32 => I32,
    u64 => U64,
    i64 => I64,
    f16 => F16,
    bf16 => BF16,
    f32 => F32,
    f64 => F64,
    Complex<f32> => CF32,
    Complex<f64> => CF64,
}
