//! The cell of one storage id: where a tensor's bytes are now.
//!
//! A cell belongs to one section and is reached only through it, so it holds no atomics
//! and cannot change under a reader. It knows what the compiler planned (location,
//! bytes, alignment, whether some node writes it) and takes only regions that fit.
//!
//! What it does not know: which slots refer to it, and who owns it.

use std::fmt;

use super::{Refusal, Region, TView};
use crate::memory::Address;
use crate::tensor::{MemLoc, TDesc};

/// Stable object that holds where a tensor's bytes are now.
///
/// Made by the compiler, one for each storage id; a task reaches those of its owned slots
/// through [`IOStorageAccess`](super::IOStorageAccess), for the length of one hook.
#[derive(Debug)]
pub struct Storage {
    region: Option<Region>,
    // What every publication is checked against, out of `desc`.
    location: MemLoc,
    bytes: usize,
    align: usize,
    written: bool,
    desc: TDesc,
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
            region: None,
            location: desc.location(),
            bytes: desc.end(),
            align: desc.dtype().align(),
            written,
            desc,
        }
    }

    /// The same cell for tensors of another element type too, whose elements need addresses at
    /// multiples of `align`.
    pub(crate) fn aligned(mut self, align: usize) -> Self {
        self.align = self.align.max(align);
        self
    }

    /// Puts `region` in the cell, so that every view of it shows these bytes.
    ///
    /// # Errors
    /// Gives the region back, with the reason, if the cell is full, or if the region is
    /// too small, in another memory, misaligned, or shared while some node writes it.
    #[inline]
    pub fn publish(&mut self, region: Region) -> Result<(), Refused> {
        if self.region.is_some() || !self.fits(&region) {
            return Err(self.refuse(region));
        }
        self.region = Some(region);
        Ok(())
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

    /// The region published now. Not for tasks: its bytes would be reachable through a view,
    /// beside a slice of an output that overwrites them.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Bytes a region must have to be published here.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn desc(&self) -> &TDesc {
        &self.desc
    }

    /// Whether the cell, if it is empty, takes `region`.
    #[inline]
    fn fits(&self, region: &Region) -> bool {
        region.location() == self.location
            && region.len() >= self.bytes
            && self.aligns(region.address())
            && !(self.written && region.is_shared())
    }

    /// Whether elements may begin at `address`; alignments are powers of two.
    #[inline]
    fn aligns(&self, address: Address) -> bool {
        address.as_u64() & (self.align as u64 - 1) == 0
    }

    /// Why the cell does not take `region`.
    #[cold]
    #[inline(never)]
    fn refuse(&self, region: Region) -> Refused {
        let refusal = if self.region.is_some() {
            Refusal::Full
        } else if region.location() != self.location {
            Refusal::WrongLocation {
                found: region.location(),
                expected: self.location,
            }
        } else if region.len() < self.bytes {
            Refusal::TooSmall {
                found: region.len(),
                expected: self.bytes,
            }
        } else if !self.aligns(region.address()) {
            Refusal::Misaligned {
                address: region.address(),
                align: self.align,
            }
        } else {
            Refusal::ReadOnly
        };
        Refused { region, refusal }
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

#[cfg(test)]
#[cfg(not(loom))]
#[path = "cell_tests.rs"]
mod tests;
