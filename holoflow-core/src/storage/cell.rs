//! The cell of one storage id: where a tensor's bytes are now.
//!
//! A cell belongs to one section and is reached only through it, so it holds no atomics
//! and cannot change under a reader. It knows what the compiler planned (location,
//! bytes, alignment, whether some node writes it) and takes only regions that fit.
//!
//! What it does not know: which slots refer to it, and who owns it.

use std::fmt;

use super::{Refusal, Region, TView};
use crate::tensor::TDesc;

/// Stable object that holds where a tensor's bytes are now.
///
/// Made by the compiler, one for each storage id; a task reaches those of its owned slots
/// through [`IOStorageAccess`](super::IOStorageAccess), for the length of one hook.
#[derive(Debug)]
pub struct Storage {
    desc: TDesc,
    align: usize,
    written: bool,
    region: Option<Region>,
}

/// A region that a cell or ring did not take, and why.
#[derive(Debug, thiserror::Error)]
#[error("{refusal}")]
pub struct Refused {
    /// The region, unchanged.
    pub region: Region,
    /// Why it was not taken.
    pub refusal: Refusal,
}

impl Storage {
    /// An empty cell for a tensor of layout `desc`; `written` says whether some node
    /// writes it, so that it takes no shared region.
    pub(crate) fn new(desc: TDesc, written: bool) -> Self {
        Self {
            align: desc.dtype().align(),
            desc,
            written,
            region: None,
        }
    }

    /// Puts `region` in the cell, so that every view of it shows these bytes.
    ///
    /// # Errors
    /// Gives the region back, with the reason, if the cell is full, or if the region is
    /// too small, in another memory, misaligned, or shared while some node writes it.
    #[inline]
    #[allow(clippy::result_large_err, reason = "the error carries the region back")]
    pub fn publish(&mut self, region: Region) -> Result<(), Refused> {
        match self.refusal(&region) {
            None => {
                self.region = Some(region);
                Ok(())
            }
            Some(refusal) => Err(Refused { region, refusal }),
        }
    }

    /// Takes the region out of the cell; `None` if it is empty.
    #[inline]
    pub fn retract(&mut self) -> Option<Region> {
        self.region.take()
    }

    /// The cell under the descriptor of the tensor it was made for.
    #[must_use]
    pub fn view(&self) -> TView<'_> {
        TView::new(&self.desc, self)
    }

    /// Whether a region is published.
    #[must_use]
    #[inline]
    pub fn is_published(&self) -> bool {
        self.region.is_some()
    }

    /// The region published now.
    #[must_use]
    #[inline]
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Bytes a region must have to be published here.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.desc.end()
    }

    pub(super) fn desc(&self) -> &TDesc {
        &self.desc
    }

    #[inline]
    fn refusal(&self, region: &Region) -> Option<Refusal> {
        if self.region.is_some() {
            return Some(Refusal::Full);
        }
        if region.location() != self.desc.location() {
            return Some(Refusal::WrongLocation {
                found: region.location(),
                expected: self.desc.location(),
            });
        }
        if region.len() < self.bytes() {
            return Some(Refusal::TooSmall {
                found: region.len(),
                expected: self.bytes(),
            });
        }
        if region.address().as_u64() % self.align as u64 != 0 {
            return Some(Refusal::Misaligned {
                address: region.address(),
                align: self.align,
            });
        }
        if self.written && region.is_shared() {
            return Some(Refusal::ReadOnly);
        }
        None
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.region {
            Some(region) => write!(f, "{} at {:?}", self.desc, region.address()),
            None => write!(f, "{}, empty", self.desc),
        }
    }
}
