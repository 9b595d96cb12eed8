//! A descriptor and a cell: what a tensor looks like and where it is now.
//!
//! A view describes. It gives no bytes: those are reached through
//! [`Inputs`](super::Inputs) and [`Outputs`](super::Outputs), or through the region.

use super::Storage;
use crate::memory::Address;
use crate::tensor::TDesc;

/// View of a tensor: its descriptor, and the cell that says where its bytes are now.
#[derive(Debug, Clone, Copy)]
pub struct TView<'a> {
    desc: &'a TDesc,
    storage: &'a Storage,
}

impl<'a> TView<'a> {
    pub(crate) fn new(desc: &'a TDesc, storage: &'a Storage) -> Self {
        Self { desc, storage }
    }

    /// Shape, element type, location, strides and offset.
    #[must_use]
    pub fn desc(&self) -> &'a TDesc {
        self.desc
    }

    /// The cell.
    #[must_use]
    pub fn storage(&self) -> &'a Storage {
        self.storage
    }

    /// Address of the first element: that of the published region, and the descriptor's
    /// offset; `None` while nothing is published.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        let region = self.storage.region()?;
        Some(region.address().plus(self.desc.offset()))
    }
}
