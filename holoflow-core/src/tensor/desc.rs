//! Shape, element type, location and layout of a tensor.
//!
//! A descriptor is immutable and shared: cloning it counts a reference and never
//! allocates. Everything derived from it (elements, span, contiguity) is computed and
//! checked when it is made.
//!
//! Invariants:
//!
//! 1. Offset and span together, and the elements laid end to end, are at most
//!    `isize::MAX` bytes, so that no getter overflows and every tensor can be copied to a
//!    contiguous one.
//! 2. The descriptor never changes: what was checked once stays true.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{DType, Element, MemLoc, TensorError};
use crate::sync::Arc;

/// Descriptor of a tensor: what it looks like, without its bytes.
///
/// ```
/// use holoflow_core::tensor::{DType, MemLoc, TDesc};
///
/// let desc = TDesc::new([2, 3, 4], DType::F32, MemLoc::Host)?;
/// assert_eq!(desc.strides(), [48, 16, 4]);
/// assert_eq!(desc.num_bytes(), 96);
/// assert_eq!(desc.to_string(), "F32[2,3,4]@Host");
/// # Ok::<(), holoflow_core::tensor::TensorError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TDesc(Arc<Inner>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Inner {
    shape: Box<[usize]>,
    dtype: DType,
    location: MemLoc,
    strides: Box<[usize]>,
    offset: usize,
    elements: usize,
    bytes: usize,
    contiguous: bool,
    aligned: bool,
}

impl TDesc {
    /// A tensor with row-major strides and no offset.
    ///
    /// # Errors
    /// If it would be larger than memory can be.
    pub fn new(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        location: MemLoc,
    ) -> Result<Self, TensorError> {
        Self::with_offset(shape, dtype, location, 0)
    }

    /// A tensor in host memory with row-major strides and no offset.
    ///
    /// # Errors
    /// If it would be larger than memory can be.
    pub fn host<T: Element>(shape: impl AsRef<[usize]>) -> Result<Self, TensorError> {
        Self::new(shape, T::DTYPE, MemLoc::Host)
    }

    /// A tensor with row-major strides that begins `offset` bytes into its storage.
    ///
    /// # Errors
    /// If it would be larger than memory can be.
    pub fn with_offset(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        location: MemLoc,
        offset: usize,
    ) -> Result<Self, TensorError> {
        let shape = shape.as_ref();
        let strides = row_major(shape, dtype).ok_or_else(|| overflow(shape, dtype))?;
        Self::with_layout(shape, dtype, location, strides, offset)
    }

    /// A tensor with the given strides and offset, in bytes.
    ///
    /// # Errors
    /// If there is not one stride for each axis, or it would be larger than memory can be.
    pub fn with_layout(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        location: MemLoc,
        strides: impl AsRef<[usize]>,
        offset: usize,
    ) -> Result<Self, TensorError> {
        let (shape, strides) = (shape.as_ref(), strides.as_ref());
        if strides.len() != shape.len() {
            return Err(TensorError::StrideRank {
                found: strides.len(),
                expected: shape.len(),
            });
        }
        let elements = elements(shape);
        let bytes = span(shape, strides, dtype);
        let (Some(elements), Some(bytes)) = (elements, bytes) else {
            return Err(overflow(shape, dtype));
        };
        // One limit for all: no allocation is longer than `isize::MAX`. Strides of zero span
        // fewer bytes than the elements laid end to end, which must be possible too.
        let packed = elements.checked_mul(dtype.size());
        if packed.is_none_or(|packed| isize::try_from(packed).is_err()) {
            return Err(overflow(shape, dtype));
        }
        if offset
            .checked_add(bytes)
            .is_none_or(|end| isize::try_from(end).is_err())
        {
            return Err(overflow(shape, dtype));
        }
        let axes = || shape.iter().zip(strides).filter(|(extent, _)| **extent > 1);
        let contiguous = elements == 0
            || row_major(shape, dtype).is_some_and(|expected| {
                shape
                    .iter()
                    .zip(strides)
                    .zip(&expected)
                    .all(|((extent, stride), expected)| *extent == 1 || stride == expected)
            });
        let aligned = offset.is_multiple_of(dtype.align())
            && axes().all(|(_, stride)| stride.is_multiple_of(dtype.align()));
        Ok(Self(Arc::new(Inner {
            shape: shape.into(),
            dtype,
            location,
            strides: strides.into(),
            offset,
            elements,
            bytes,
            contiguous,
            aligned,
        })))
    }

    /// Extent of each axis.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.shape.len()
    }

    /// Type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Where the bytes lie.
    #[must_use]
    pub fn location(&self) -> MemLoc {
        self.0.location
    }

    /// Distance between neighbours along each axis, in bytes.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.0.strides
    }

    /// Where the first element is in the storage, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// Number of elements; 1 for rank 0.
    #[must_use]
    pub fn num_elements(&self) -> usize {
        self.0.elements
    }

    /// Bytes from the first element to the end of the last, gaps included; 0 if there are no
    /// elements.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.0.bytes
    }

    /// Where the tensor ends in its storage: offset and span, in bytes.
    #[must_use]
    pub fn end(&self) -> usize {
        self.0.offset + self.0.bytes
    }

    /// Whether the elements follow each other in row-major order without gaps. The offset does
    /// not matter, nor do strides of axes of extent 1.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.0.contiguous
    }

    /// Whether every element is at a multiple of the type's alignment, if the storage is.
    #[must_use]
    pub fn is_element_aligned(&self) -> bool {
        self.0.aligned
    }

    /// Bytes of one index of axis 0; `None` unless the tensor is contiguous and has such an
    /// index.
    #[must_use]
    pub fn row_bytes(&self) -> Option<usize> {
        if !self.is_contiguous() {
            return None;
        }
        self.num_bytes().checked_div(*self.shape().first()?)
    }

    /// The same shape, element type and location with row-major strides and no offset.
    #[must_use]
    pub fn normalized(&self) -> Self {
        if self.offset() == 0
            && row_major(self.shape(), self.dtype()).as_deref() == Some(self.strides())
        {
            return self.clone();
        }
        Self::new(self.shape(), self.dtype(), self.location())
            .expect("the elements laid end to end fit, which was checked for `self`")
    }

    /// The same tensor in another memory.
    #[must_use]
    pub fn at_location(&self, location: MemLoc) -> Self {
        if location == self.location() {
            return self.clone();
        }
        let inner = &*self.0;
        Self(Arc::new(Inner {
            shape: inner.shape.clone(),
            strides: inner.strides.clone(),
            location,
            ..*inner
        }))
    }

    /// Whether all but the offset is equal.
    #[must_use]
    pub fn same_layout(&self, other: &Self) -> bool {
        self.shape() == other.shape()
            && self.dtype() == other.dtype()
            && self.location() == other.location()
            && self.strides() == other.strides()
    }
}

fn overflow(shape: &[usize], dtype: DType) -> TensorError {
    TensorError::Overflow {
        shape: shape.to_vec(),
        dtype: dtype.name(),
    }
}

/// Number of elements: 0 if any extent is, `None` if it overflows.
fn elements(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1_usize, |product, extent| product.checked_mul(*extent))
}

/// Sum of (extent - 1) x stride, and one element; 0 if any extent is.
fn span(shape: &[usize], strides: &[usize], dtype: DType) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .zip(strides)
        .try_fold(dtype.size(), |sum, (extent, stride)| {
            sum.checked_add((extent - 1).checked_mul(*stride)?)
        })
}

/// Row-major strides. In a tensor without elements, one that would overflow is 0.
fn row_major(shape: &[usize], dtype: DType) -> Option<Vec<usize>> {
    let empty = shape.contains(&0);
    let mut strides = vec![0; shape.len()];
    let mut next = Some(dtype.size());
    for (stride, extent) in strides.iter_mut().zip(shape).rev() {
        *stride = match next {
            Some(next) => next,
            None if empty => 0,
            None => return None,
        };
        next = next.and_then(|next| next.checked_mul(*extent));
    }
    Some(strides)
}

/// A list of numbers as descriptors print it.
struct Extents<'a>(&'a [usize]);

impl fmt::Display for Extents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, extent) in self.0.iter().enumerate() {
            let comma = if axis > 0 { "," } else { "" };
            write!(f, "{comma}{extent}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for TDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}@{}",
            self.dtype(),
            Extents(self.shape()),
            self.location()
        )?;
        if row_major(self.shape(), self.dtype()).as_deref() != Some(self.strides()) {
            write!(f, " strides {}", Extents(self.strides()))?;
        }
        if self.offset() > 0 {
            write!(f, " offset {}", self.offset())?;
        }
        Ok(())
    }
}

impl fmt::Debug for TDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TDesc({self})")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    shape: Vec<usize>,
    dtype: DType,
    mem_loc: MemLoc,
    #[serde(default)]
    strides: Option<Vec<usize>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    offset: usize,
}

fn is_zero(offset: &usize) -> bool {
    *offset == 0
}

impl Serialize for TDesc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = Json {
            shape: self.shape().to_vec(),
            dtype: self.dtype(),
            mem_loc: self.location(),
            strides: Some(self.strides().to_vec()),
            offset: self.offset(),
        };
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TDesc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let desc = match json.strides {
            Some(strides) => {
                Self::with_layout(json.shape, json.dtype, json.mem_loc, strides, json.offset)
            }
            None => Self::with_offset(json.shape, json.dtype, json.mem_loc, json.offset),
        };
        desc.map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(shape: &[usize], dtype: DType) -> TDesc {
        TDesc::new(shape, dtype, MemLoc::Host).unwrap()
    }

    #[test]
    fn t_02_default_strides_are_row_major_in_bytes() {
        let desc = host(&[2, 3, 4], DType::F32);
        assert_eq!(desc.strides(), [48, 16, 4]);
        assert_eq!(
            (desc.rank(), desc.num_elements(), desc.num_bytes()),
            (3, 24, 96)
        );
    }

    #[test]
    fn t_03_the_offset_constructor_keeps_row_major_strides() {
        let desc = TDesc::with_offset([2, 3], DType::U16, MemLoc::Host, 7).unwrap();
        assert_eq!(desc.strides(), [6, 2]);
        assert_eq!(desc.offset(), 7);
        assert_eq!(desc.to_string(), "U16[2,3]@Host offset 7");
    }

    #[test]
    fn t_04_custom_strides_and_offset_are_kept() {
        let desc = TDesc::with_layout([2, 3], DType::U16, MemLoc::Host, [16, 4], 9).unwrap();
        assert_eq!(desc.strides(), [16, 4]);
        assert_eq!(desc.offset(), 9);
        assert_eq!(desc.num_bytes(), 26);
        assert_eq!(desc.end(), 35);
        assert_eq!(desc.to_string(), "U16[2,3]@Host strides [16,4] offset 9");
    }

    #[test]
    fn t_07_a_zero_extent_gives_no_elements() {
        let desc = host(&[3, 0, 2], DType::U16);
        assert_eq!(desc.strides(), [0, 4, 2]);
        assert_eq!((desc.num_elements(), desc.num_bytes()), (0, 0));
        assert!(desc.is_contiguous());
    }

    #[test]
    fn t_08_overflow_is_an_error_and_a_zero_extent_is_not() {
        for shape in [
            vec![usize::MAX, 2],
            vec![2, usize::MAX],
            vec![1 << 62, 1 << 62],
        ] {
            let error = TDesc::new(&shape, DType::U8, MemLoc::Host).unwrap_err();
            assert_eq!(error, TensorError::Overflow { shape, dtype: "U8" });
        }
        for shape in [[0, usize::MAX, 2], [usize::MAX, 2, 0]] {
            assert_eq!(host(&shape, DType::F32).num_elements(), 0);
        }
    }

    #[test]
    fn a_tensor_that_could_not_be_laid_end_to_end_is_refused() {
        let broadcast = |extent| TDesc::with_layout([extent], DType::F32, MemLoc::Host, [0], 8);
        assert!(broadcast(1 << 62).is_err());
        let desc = broadcast(1 << 40).unwrap();
        assert_eq!(
            (desc.num_bytes(), desc.normalized().num_bytes()),
            (4, 4 << 40)
        );
        assert!(desc.normalized().is_contiguous());
    }

    #[test]
    fn unequal_descriptors_print_differently() {
        let layout = |stride| {
            TDesc::with_layout([1], DType::U8, MemLoc::Host, [stride], 0)
                .unwrap()
                .to_string()
        };
        assert_eq!(layout(1), "U8[1]@Host");
        assert_eq!(layout(9), "U8[1]@Host strides [9]");
    }

    #[test]
    fn the_end_of_a_tensor_is_within_what_an_allocation_can_be() {
        let most = isize::MAX as usize;
        assert!(TDesc::with_offset([1], DType::U8, MemLoc::Host, most).is_err());
        let desc = TDesc::with_offset([1], DType::U8, MemLoc::Host, most - 1).unwrap();
        assert_eq!(desc.end(), most);
    }

    #[test]
    fn t_11_json_reads_back_equal() {
        let desc = TDesc::with_layout([2, 3], DType::U16, MemLoc::Device(1), [16, 4], 9).unwrap();
        let json = serde_json::to_value(&desc).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "shape": [2, 3], "dtype": "U16", "mem_loc": "Device:1", "strides": [16, 4],
                "offset": 9
            })
        );
        assert_eq!(serde_json::from_value::<TDesc>(json).unwrap(), desc);

        let plain = host(&[4], DType::F32);
        let json = serde_json::to_value(&plain).unwrap();
        assert!(json.get("offset").is_none());
        assert_eq!(serde_json::from_value::<TDesc>(json).unwrap(), plain);
        let short = serde_json::json!({ "shape": [4], "dtype": "F32", "mem_loc": "Host" });
        assert_eq!(serde_json::from_value::<TDesc>(short).unwrap(), plain);
        let odd = serde_json::json!({ "shape": [4], "dtype": "F32", "mem_loc": "Host", "x": 1 });
        assert!(serde_json::from_value::<TDesc>(odd).is_err());
    }

    #[test]
    fn t_14_strides_of_another_rank_are_refused() {
        let error = TDesc::with_layout([2, 3], DType::U8, MemLoc::Host, [1], 0).unwrap_err();
        assert_eq!(
            error,
            TensorError::StrideRank {
                found: 1,
                expected: 2
            }
        );
    }

    #[test]
    fn t_15_contiguity_ignores_the_offset_and_axes_of_extent_one() {
        let layout = |shape: &[usize], strides: &[usize], offset| {
            TDesc::with_layout(shape, DType::F32, MemLoc::Host, strides, offset).unwrap()
        };
        assert!(layout(&[2, 3], &[12, 4], 8).is_contiguous());
        assert!(layout(&[1, 3], &[999, 4], 0).is_contiguous());
        assert!(!layout(&[2, 3], &[16, 4], 0).is_contiguous());
        assert!(!layout(&[3, 2], &[4, 12], 0).is_contiguous());
    }

    #[test]
    fn rank_zero_has_one_element() {
        let desc = host(&[], DType::F64);
        assert_eq!((desc.num_elements(), desc.num_bytes()), (1, 8));
        assert_eq!(desc.row_bytes(), None);
    }

    #[test]
    fn alignment_looks_at_offset_and_used_strides() {
        let layout = |strides: &[usize], offset| {
            TDesc::with_layout([2, 1], DType::F32, MemLoc::Host, strides, offset).unwrap()
        };
        assert!(layout(&[8, 3], 4).is_element_aligned());
        assert!(!layout(&[8, 3], 2).is_element_aligned());
        assert!(!layout(&[6, 3], 0).is_element_aligned());
    }

    #[test]
    fn rows_are_what_an_index_of_axis_zero_takes() {
        assert_eq!(host(&[4, 3], DType::U16).row_bytes(), Some(6));
        assert_eq!(host(&[0, 3], DType::U16).row_bytes(), None);
    }

    #[test]
    fn normalising_drops_offset_and_gaps() {
        let odd = TDesc::with_layout([2, 3], DType::U16, MemLoc::Host, [16, 4], 9).unwrap();
        assert_eq!(odd.normalized(), host(&[2, 3], DType::U16));
        assert!(!odd.same_layout(&odd.normalized()));
        let moved = odd.at_location(MemLoc::HostPinned);
        assert_eq!(moved.location(), MemLoc::HostPinned);
        assert_eq!(
            (moved.strides(), moved.offset()),
            (odd.strides(), odd.offset())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn the_span_is_what_visiting_every_element_finds(
            axes in prop::collection::vec((0_usize..4, 0_usize..40), 0..4),
            offset in 0_usize..9,
        ) {
            let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
            let desc =
                TDesc::with_layout(&shape, DType::U16, MemLoc::Host, &strides, offset).unwrap();
            let mut places = vec![offset];
            for (extent, stride) in shape.iter().zip(&strides) {
                places = places
                    .iter()
                    .flat_map(|place| (0..*extent).map(move |index| place + index * stride))
                    .collect();
            }
            prop_assert_eq!(desc.num_elements(), places.len());
            let end = places.iter().map(|place| place + 2).max();
            prop_assert_eq!(desc.num_bytes(), end.map_or(0, |end| end - offset));
            let in_order = places.iter().enumerate().all(|(n, place)| *place == offset + 2 * n);
            prop_assert_eq!(desc.is_contiguous(), in_order);
            let aligned = places.iter().all(|place| place % 2 == 0);
            if !places.is_empty() {
                prop_assert_eq!(desc.is_element_aligned(), aligned);
            }
        }
    }
}
