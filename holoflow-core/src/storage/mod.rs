//! Who may touch which bytes when.
//!
//! The pieces, from the bytes up:
//!
//! - A [`Region`] is the move-only, unique owner of a byte range. It comes from a
//!   [`TaskBuffer`] and keeps its allocation alive. A [`SharedRegion`] is one that
//!   several hold and nobody writes.
//! - A [`Storage`] is the cell of one storage id: where a tensor's bytes are now. Its
//!   section publishes a region in it and retracts it again.
//! - A [`TView`] is a descriptor and a cell: it describes, and gives no bytes.
//! - [`Inputs`] and [`Outputs`] are one node's slots for the length of one hook. Bytes
//!   are reached through them, and so cannot be kept.
//! - [`Sides`] are the two tokens of an async node: whoever holds a [`ProducerSide`] or
//!   [`ConsumerSide`] mutably is the only one acting on that side. [`ProducerCell`] and
//!   [`ConsumerCell`] hold state that belongs to one side.
//! - [`SlotRing`] and [`RegionSlot`] pass regions from one side to the other. Of a
//!   [`DelayRing`] each row is read twice, and a [`SwapRing`] drops what does not fit.
//! - A [`LentRegion`] goes out and comes back on one side.
//!
//! What this layer does not know: tasks, hooks, and when a scheduler calls them. It is
//! sound whatever order its safe interface is called in, from whatever threads; the
//! right order is the business of the layers above.
//!
//! Invariants, each with tests whose names begin with its number:
//!
//! - **ST1** No byte is in two live regions that may be written, nor in one that may be
//!   written and one that is shared. Held by: regions are made by splitting others
//!   (`region.rs`) or by a ring or place that owns the region its windows lie in (`ring.rs`,
//!   `delay_ring.rs`, `window.rs`).
//! - **ST2** A region's bytes outlive it. Held by: it owns a count on its allocation, or
//!   on the region it was made from.
//! - **ST3** Within one hook, no byte is reachable through `Inputs` and writable through
//!   `Outputs`, nor through two outputs. Held by: `SlotTable` construction compares
//!   the cells of all slots; a node's slots are lent under a mutable borrow of the bank.
//! - **ST4** A cell cannot change while a slice of its bytes lives. Held by: reaching a
//!   cell needs a mutable borrow of the whole context.
//! - **ST5** Bytes that device work may still touch are not reachable on the host. Held
//!   by: the region's ready-after token, which travels with it and, when it is dropped,
//!   to whoever may hand the bytes out next.

mod access;
#[allow(unsafe_code, reason = "hands out slices of the cells of one section")]
mod bank;
mod cell;
#[allow(unsafe_code, reason = "mints windows of a region for two threads")]
mod delay_ring;
mod error;
#[cfg(test)]
#[cfg(loom)]
mod loom_ring;
#[allow(unsafe_code, reason = "makes disjoint regions of one allocation")]
mod region;
#[allow(unsafe_code, reason = "mints windows of a region for two threads")]
mod ring;
#[allow(unsafe_code, reason = "opens a cell to the holder of a side's token")]
mod side;
mod swap_ring;
mod view;
#[allow(unsafe_code, reason = "places windows of a region")]
mod window;

pub use access::IOStorageAccess;
pub(crate) use bank::{Alias, CellBank, SlotSpec, SlotTable, owned_storage, slot_view};
pub use bank::{Inputs, Outputs};
pub use cell::{Refused, Storage};
pub use delay_ring::{DelayLayout, DelayReader, DelayRing, DelayedPair};
pub use error::{ContractError, Refusal, Slot};
pub use region::{Region, RegionError, SharedRegion, TaskBuffer};
pub use ring::{RegionSlot, RingError, RingLayout, SlotRing, rows_for};
pub use side::{
    ConsumerCell, ConsumerSide, ProducerCell, ProducerSide, SideCell, SideToken, Sides,
};
pub use swap_ring::{Overflow, SwapRing};
pub use view::TView;
pub use window::LentRegion;
