//! What travels with a frame beside its bytes.

use smallvec::SmallVec;

use crate::clock::Timestamp;

/// Metadata of one frame. Copying it does not allocate for up to four user fields.
///
/// ```
/// use holoflow_core::task::{FrameMeta, MetaValue};
///
/// let mut meta = FrameMeta::default();
/// meta.set("exposure_us", MetaValue::Int(250));
/// assert_eq!(meta.get("exposure_us"), Some(MetaValue::Int(250)));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FrameMeta {
    /// Number of the frame at its source, from 0.
    pub sequence: u64,
    /// When the frame was captured.
    pub captured: Option<Timestamp>,
    /// How many rows of axis 0 are valid; `None` means all.
    pub valid: Option<u64>,
    entered: Option<Entered>,
    fields: MetaFields,
}

/// The user fields.
pub(crate) type MetaFields = SmallVec<[(&'static str, MetaValue); 4]>;

/// When a frame came into the pipeline, and by which node; of some frames only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entered {
    pub(crate) at: Timestamp,
    pub(crate) source: u32,
}

/// Value of a user field.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum MetaValue {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

impl FrameMeta {
    /// Metadata of frame number `sequence`.
    #[must_use]
    pub fn numbered(sequence: u64) -> Self {
        Self {
            sequence,
            ..Self::default()
        }
    }

    /// Sets a user field.
    pub fn set(&mut self, name: &'static str, value: MetaValue) {
        match self.fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name, value)),
        }
    }

    /// The user field `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<MetaValue> {
        self.fields
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    /// All user fields, in the order they were first set.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, MetaValue)> {
        self.fields.iter().copied()
    }

    /// Makes it that of frame number `sequence`, of which nothing else is known.
    #[inline]
    pub(crate) fn renumber(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.captured = None;
        self.valid = None;
        self.entered = None;
        self.clear_fields();
    }

    /// Whether it is that of [`numbered`](Self::numbered).
    #[inline]
    pub(crate) fn is_only_numbered(&self, sequence: u64) -> bool {
        self.sequence == sequence
            && self.captured.is_none()
            && self.valid.is_none()
            && self.entered.is_none()
            && !self.has_fields()
    }

    pub(crate) fn entered(&self) -> Option<Entered> {
        self.entered
    }

    pub(crate) fn set_entered(&mut self, entered: Option<Entered>) {
        self.entered = entered;
    }

    #[inline]
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    #[inline]
    pub(crate) fn clear_fields(&mut self) {
        if self.has_fields() {
            self.fields.clear();
        }
    }

    pub(crate) fn copy_fields_to(&self, to: &mut MetaFields) {
        to.clear();
        to.extend_from_slice(&self.fields);
    }

    pub(crate) fn copy_fields_from(&mut self, from: &MetaFields) {
        self.fields.clear();
        self.fields.extend_from_slice(from);
    }
}
