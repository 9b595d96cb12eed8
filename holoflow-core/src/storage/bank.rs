//! The cells of one section, and one node's slots for the length of one hook.
//!
//! A section owns a [`CellBank`]. For each of its nodes a [`SlotTable`] says, checked
//! once, which slot refers to which cell under which descriptor. To call a hook, the
//! section lends the bank: [`CellBank::lend`] borrows it mutably and gives [`Inputs`] and
//! [`Outputs`], through which the task reaches bytes.
//!
//! What this module does not know: who owns which slot at run time, and which hook is
//! being called.
//!
//! Invariants (ST3 and ST4 of the parent module):
//!
//! 1. A bank is lent to one hook at a time: `lend` needs it mutably for as long as what
//!    it returns lives. `Inputs` and `Outputs` are made there only, as a pair.
//! 2. No output that may be written refers to a cell that a readable input or another
//!    writable output refers to: [`CellBank::bind`] refuses the table or marks the input
//!    as overwritten, and [`Inputs`] refuses marked inputs.
//! 3. A cell is changed only through [`owned_storage`] (both halves of the pair borrowed
//!    mutably, so no slice lives) or [`CellBank::cell_mut`] (the bank borrowed mutably).
//!
//! Two cells never hold the same bytes, since regions are unique (ST1), so comparing
//! cells is comparing bytes.
//!
//! Only the section's thread touches a bank; it is `Send` and not `Sync`.

use std::cell::UnsafeCell;

use super::{ContractError, Refusal, Region, Slot, Storage, TView};
use crate::sync::next_id;
use crate::tensor::{DType, Element, TDesc};

/// The cells of one section.
#[derive(Debug)]
pub(crate) struct CellBank {
    id: u64,
    cells: Box<[UnsafeCell<Storage>]>,
}

/// What the compiler says of one slot.
#[derive(Debug, Clone)]
pub(crate) struct SlotSpec {
    /// Layout of the tensor in this slot.
    pub(crate) desc: TDesc,
    /// Number of its cell in the bank.
    pub(crate) cell: usize,
    /// Whether the node owns the slot.
    pub(crate) owned: bool,
    /// For an output that shares its cell with inputs: how.
    pub(crate) alias: Option<Alias>,
}

/// How an output shares the storage of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alias {
    /// Read-only; the output has no bytes of its own.
    View,
    /// The node writes the output where the input was.
    Overwrite,
}

/// The slots of one node, checked against the bank they were bound to.
#[derive(Debug)]
pub(crate) struct SlotTable {
    bank: u64,
    inputs: Box<[BoundSlot]>,
    outputs: Box<[BoundSlot]>,
}

impl SlotTable {
    /// Whether the node has inputs.
    pub(crate) fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }
}

#[derive(Debug)]
struct BoundSlot {
    cell: usize,
    /// Range of the tensor's bytes within the region.
    start: usize,
    end: usize,
    elements: usize,
    /// Element type that typed access must ask for.
    element: DType,
    /// That type if the layout is a slice of elements on the host, not overwritten and no
    /// view, so that typed access has one thing to compare.
    plain: Option<DType>,
    owned: bool,
    alias: Option<Alias>,
    /// For an input: the output of this node that overwrites its storage.
    overwritten_by: Option<usize>,
    desc: TDesc,
}

impl CellBank {
    pub(crate) fn new(cells: Vec<Storage>) -> Self {
        Self {
            id: next_id(),
            cells: cells.into_iter().map(UnsafeCell::new).collect(),
        }
    }

    /// The cell with this number.
    pub(crate) fn cell_mut(&mut self, cell: usize) -> Option<&mut Storage> {
        self.cells.get_mut(cell).map(UnsafeCell::get_mut)
    }

    /// Checks a node's slots against the cells.
    ///
    /// # Errors
    /// If a slot has no cell, does not fit its cell, or an output would write what a slot
    /// not declared as overwritten refers to.
    pub(crate) fn bind(
        &mut self,
        inputs: Vec<SlotSpec>,
        outputs: Vec<SlotSpec>,
    ) -> Result<SlotTable, ContractError> {
        let mut bound_inputs = Vec::with_capacity(inputs.len());
        for (index, spec) in inputs.into_iter().enumerate() {
            bound_inputs.push(self.bind_slot(Slot::Input(index), spec)?);
        }
        let mut bound_outputs: Vec<BoundSlot> = Vec::with_capacity(outputs.len());
        for (index, spec) in outputs.into_iter().enumerate() {
            let bound = self.bind_slot(Slot::Output(index), spec)?;
            if bound.alias != Some(Alias::View) {
                let twin = bound_outputs
                    .iter()
                    .any(|other| other.cell == bound.cell && other.alias != Some(Alias::View));
                if twin {
                    return Err(ContractError::SameSlotTwice {
                        slot: Slot::Output(index),
                    });
                }
                for (input, slot) in bound_inputs.iter_mut().enumerate() {
                    if slot.cell != bound.cell {
                        continue;
                    }
                    if bound.alias != Some(Alias::Overwrite) {
                        return Err(ContractError::Overwritten {
                            input: Slot::Input(input),
                            output: Slot::Output(index),
                        });
                    }
                    slot.overwritten_by = Some(index);
                    slot.plain = None;
                }
            }
            bound_outputs.push(bound);
        }
        Ok(SlotTable {
            bank: self.id,
            inputs: bound_inputs.into(),
            outputs: bound_outputs.into(),
        })
    }

    fn bind_slot(&mut self, slot: Slot, spec: SlotSpec) -> Result<BoundSlot, ContractError> {
        let count = self.cells.len();
        let Some(cell) = self.cell_mut(spec.cell) else {
            return Err(ContractError::SlotOutOfRange { slot, count });
        };
        let desc = spec.desc;
        if desc.location() != cell.desc().location() {
            let (found, expected) = (cell.desc().location(), desc.location());
            let refusal = Refusal::WrongLocation { found, expected };
            return Err(ContractError::Misfit { slot, refusal });
        }
        if desc.end() > cell.bytes() {
            let refusal = Refusal::TooSmall {
                found: cell.bytes(),
                expected: desc.end(),
            };
            return Err(ContractError::Misfit { slot, refusal });
        }
        let element = desc.dtype().viewed_as();
        let view = matches!(slot, Slot::Output(_)) && spec.alias == Some(Alias::View);
        let plain = is_slice(&desc) && !view;
        Ok(BoundSlot {
            cell: spec.cell,
            start: desc.offset(),
            end: desc.end(),
            elements: desc.num_elements(),
            element,
            plain: plain.then_some(element),
            owned: spec.owned,
            alias: spec.alias,
            overwritten_by: None,
            desc,
        })
    }

    /// Lends the bank to a hook of the node with these slots.
    ///
    /// # Errors
    /// [`ContractError::ForeignSide`] if the table was bound to another bank.
    #[inline]
    pub(crate) fn lend<'a>(
        &'a mut self,
        table: &'a SlotTable,
    ) -> Result<(Inputs<'a>, Outputs<'a>), ContractError> {
        if table.bank != self.id {
            return Err(ContractError::ForeignSide);
        }
        let bank = &*self;
        Ok((Inputs { bank, table }, Outputs { bank, table }))
    }

    /// The cell with this number, to be read.
    #[inline]
    fn cell(&self, cell: usize) -> &Storage {
        // SAFETY: by invariant 3, cells change only while the bank, or both halves of what
        // was lent from it, are borrowed mutably; `self` is borrowed here.
        unsafe { &*self.cells[cell].get() }
    }
}

/// Whether the layout is a slice of elements in host memory.
fn is_slice(desc: &TDesc) -> bool {
    desc.location().is_host() && desc.is_contiguous() && desc.is_element_aligned()
}

/// The inputs of one node, for the length of one hook.
///
/// Slices borrow from here, so none can be kept past the call.
#[derive(Debug)]
pub struct Inputs<'a> {
    bank: &'a CellBank,
    table: &'a SlotTable,
}

/// The outputs of one node, for the length of one hook.
///
/// Slices borrow from here, so none can be kept past the call.
#[derive(Debug)]
pub struct Outputs<'a> {
    bank: &'a CellBank,
    table: &'a SlotTable,
}

impl Inputs<'_> {
    /// How many inputs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.inputs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.inputs.is_empty()
    }

    /// The view of input `index`.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn view(&self, index: usize) -> Result<TView<'_>, ContractError> {
        view(self.bank, &self.table.inputs, Slot::Input(index), index)
    }

    /// The elements of input `index`, in row-major order.
    ///
    /// # Errors
    /// If there is no such input, `T` is not its element type, it is empty, not on the
    /// host, not contiguous, in use by device work, or overwritten by this node.
    #[inline]
    pub fn get<T: Element>(&self, index: usize) -> Result<&[T], ContractError> {
        if let Some(slot) = self.table.inputs.get(index)
            && slot.plain == Some(T::DTYPE)
            && let Some(start) = readable::<T>(self.bank, slot)
        {
            // SAFETY: `readable` found idle, initialised host memory of the slot's
            // size and alignment, kept alive by the region in the cell. It is only
            // read while `self` is borrowed: an output of this node that could
            // write it would have cleared `plain` (invariant 2), and the cell
            // cannot change (invariant 3).
            return Ok(unsafe { std::slice::from_raw_parts(start, slot.elements) });
        }
        Err(explain::<T>(
            self.bank,
            &self.table.inputs,
            Slot::Input(index),
            index,
            false,
        ))
    }

    /// The byte span of input `index`, gaps between elements included, whatever its layout.
    ///
    /// # Errors
    /// As [`get`](Self::get), but for element type and layout.
    pub fn bytes(&self, index: usize) -> Result<&[u8], ContractError> {
        if let Some(slot) = self.table.inputs.get(index)
            && slot.overwritten_by.is_none()
            && let Some(start) = readable::<u8>(self.bank, slot)
        {
            // SAFETY: as in `get`; bytes have no alignment.
            return Ok(unsafe { std::slice::from_raw_parts(start, slot.end - slot.start) });
        }
        Err(explain::<u8>(
            self.bank,
            &self.table.inputs,
            Slot::Input(index),
            index,
            true,
        ))
    }
}

impl Outputs<'_> {
    /// How many outputs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.outputs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.outputs.is_empty()
    }

    /// The view of output `index`.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn view(&self, index: usize) -> Result<TView<'_>, ContractError> {
        view(self.bank, &self.table.outputs, Slot::Output(index), index)
    }

    /// The elements of output `index`, in row-major order, to be written.
    ///
    /// They hold what was there before, initialised but without meaning, or the input's
    /// elements if this output overwrites one.
    ///
    /// # Errors
    /// If there is no such output, `T` is not its element type, it is empty, not on the
    /// host, not contiguous, in use by device work, shared, or a view.
    #[inline]
    pub fn get_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T], ContractError> {
        if let Some(slot) = self.table.outputs.get(index)
            && slot.plain == Some(T::DTYPE)
            && let Some(start) = writable::<T>(self.bank, slot)
        {
            // SAFETY: `writable` found idle, initialised host memory of the slot's
            // size and alignment in a region that owns it alone. While `self` is
            // borrowed mutably nobody else reaches it: no readable input and no
            // other writable output refers to the cell (invariant 2), the bank is
            // lent to this hook alone (1), and the cell cannot change (3).
            return Ok(unsafe { std::slice::from_raw_parts_mut(start, slot.elements) });
        }
        Err(explain::<T>(
            self.bank,
            &self.table.outputs,
            Slot::Output(index),
            index,
            false,
        ))
    }

    /// Two outputs at once, to be written.
    ///
    /// # Errors
    /// As [`get_mut`](Self::get_mut), or if both are the same output.
    pub fn get_pair_mut<T: Element, U: Element>(
        &mut self,
        first: usize,
        second: usize,
    ) -> Result<(&mut [T], &mut [U]), ContractError> {
        if first == second {
            return Err(ContractError::SameSlotTwice {
                slot: Slot::Output(first),
            });
        }
        let a: *mut [T] = self.get_mut::<T>(first)?;
        let b = self.get_mut::<U>(second)?;
        // SAFETY: the first slice was just made from a mutable borrow of `self`. The second
        // is of another output, which by invariant 2 refers to another cell and so to other
        // bytes; both are bound to the one mutable borrow of `self` that this call holds.
        Ok((unsafe { &mut *a }, b))
    }

    /// The byte span of output `index`, gaps between elements included, to be written.
    ///
    /// # Errors
    /// As [`get_mut`](Self::get_mut), but for element type and layout.
    pub fn bytes_mut(&mut self, index: usize) -> Result<&mut [u8], ContractError> {
        if let Some(slot) = self.table.outputs.get(index)
            && slot.alias != Some(Alias::View)
            && let Some(start) = writable::<u8>(self.bank, slot)
        {
            // SAFETY: as in `get_mut`; bytes have no alignment.
            return Ok(unsafe { std::slice::from_raw_parts_mut(start, slot.end - slot.start) });
        }
        Err(explain::<u8>(
            self.bank,
            &self.table.outputs,
            Slot::Output(index),
            index,
            true,
        ))
    }
}

impl<'a> Inputs<'a> {
    /// As [`get`](Self::get), for as long as the bank is lent.
    #[cfg(feature = "testkit")]
    pub(crate) fn into_ref<T: Element>(self, index: usize) -> Result<&'a [T], ContractError> {
        let found: *const [T] = self.get::<T>(index)?;
        // SAFETY: `self` ends here, and the slice takes its place: the bank stays mutably
        // borrowed for `'a`, and of the outputs lent with it, none may write this input.
        Ok(unsafe { &*found })
    }
}

impl<'a> Outputs<'a> {
    /// As [`get_mut`](Self::get_mut), for as long as the bank is lent.
    #[cfg(feature = "testkit")]
    pub(crate) fn into_mut<T: Element>(
        mut self,
        index: usize,
    ) -> Result<&'a mut [T], ContractError> {
        let found: *mut [T] = self.get_mut::<T>(index)?;
        // SAFETY: `self` ends here, and the slice takes its place: the bank stays mutably
        // borrowed for `'a`, and the inputs lent with it cannot read this output.
        Ok(unsafe { &mut *found })
    }
}

/// The cell of an owned slot. Both halves of the lent pair are borrowed mutably, so no
/// slice of any cell lives.
///
/// # Errors
/// If there is no such slot, it is not owned, or the halves are not of one pair.
#[inline]
pub(crate) fn owned_storage<'x>(
    inputs: &'x mut Inputs<'_>,
    outputs: &'x mut Outputs<'_>,
    slot: Slot,
) -> Result<&'x mut Storage, ContractError> {
    let cell = match lookup(inputs, outputs, slot) {
        Some(bound) if bound.owned => bound.cell,
        _ => return Err(unreachable_slot(inputs, outputs, slot)),
    };
    let bank = inputs.bank;
    // SAFETY: the bank is lent to this hook alone (invariant 1), and the one pair through
    // which the hook reaches its cells is borrowed mutably for `'x`, so no other reference
    // to this cell, or to bytes of its region, lives.
    Ok(unsafe { &mut *bank.cells[cell].get() })
}

/// The view of a slot, with the lifetime of a borrow of both halves.
pub(crate) fn slot_view<'x>(
    inputs: &'x Inputs<'_>,
    outputs: &'x Outputs<'_>,
    slot: Slot,
) -> Result<TView<'x>, ContractError> {
    match lookup(inputs, outputs, slot) {
        Some(bound) => Ok(TView::new(&bound.desc, inputs.bank.cell(bound.cell))),
        None => Err(unreachable_slot(inputs, outputs, slot)),
    }
}

/// The slot, if there is one and the halves are of one pair.
#[inline]
fn lookup<'x>(
    inputs: &'x Inputs<'_>,
    outputs: &'x Outputs<'_>,
    slot: Slot,
) -> Option<&'x BoundSlot> {
    if !is_pair(inputs, outputs) {
        return None;
    }
    match slot {
        Slot::Input(index) => inputs.table.inputs.get(index),
        Slot::Output(index) => outputs.table.outputs.get(index),
    }
}

/// Whether the halves were lent together.
///
/// The halves of contexts could only be exchanged by code that has two contexts of one
/// lifetime, which core never makes; the comparison makes it harmless all the same.
#[inline]
fn is_pair(inputs: &Inputs<'_>, outputs: &Outputs<'_>) -> bool {
    std::ptr::eq(inputs.bank, outputs.bank) && std::ptr::eq(inputs.table, outputs.table)
}

/// Why `lookup` found no slot, or one that is not owned.
#[cold]
#[inline(never)]
fn unreachable_slot(inputs: &Inputs<'_>, outputs: &Outputs<'_>, slot: Slot) -> ContractError {
    if !is_pair(inputs, outputs) {
        return ContractError::ForeignSide;
    }
    let (index, count) = match slot {
        Slot::Input(index) => (index, inputs.len()),
        Slot::Output(index) => (index, outputs.len()),
    };
    if index >= count {
        return ContractError::SlotOutOfRange { slot, count };
    }
    ContractError::SlotNotOwned { slot }
}

fn view<'x>(
    bank: &'x CellBank,
    slots: &'x [BoundSlot],
    slot: Slot,
    index: usize,
) -> Result<TView<'x>, ContractError> {
    match slots.get(index) {
        Some(bound) => Ok(TView::new(&bound.desc, bank.cell(bound.cell))),
        None => Err(ContractError::SlotOutOfRange {
            slot,
            count: slots.len(),
        }),
    }
}

/// Start of the slot's bytes as elements of `T`, if the region in its cell is host memory,
/// idle, long enough and aligned.
#[inline]
fn readable<T: Element>(bank: &CellBank, slot: &BoundSlot) -> Option<*const T> {
    let region = bank.cell(slot.cell).region()?;
    start_of::<T>(region, slot).map(<*mut T>::cast_const)
}

/// As [`readable`], if the region may be written too.
#[inline]
fn writable<T: Element>(bank: &CellBank, slot: &BoundSlot) -> Option<*mut T> {
    let region = bank.cell(slot.cell).region()?;
    if region.is_shared() {
        return None;
    }
    start_of::<T>(region, slot)
}

#[inline]
fn start_of<T: Element>(region: &Region, slot: &BoundSlot) -> Option<*mut T> {
    // The cell checked all this when the region was published. A cell is reached as
    // `&mut Storage`, though, so safe code could exchange the contents of two cells.
    if region.len() < slot.end || !region.location().is_host() || !region.is_idle() {
        return None;
    }
    // SAFETY: `start` is at most `end`, which is within the region.
    let start = unsafe { region.ptr().add(slot.start) };
    (start.addr().get() % align_of::<T>() == 0).then_some(start.as_ptr().cast())
}

/// Why typed access was refused.
#[cold]
#[inline(never)]
fn explain<T: Element>(
    bank: &CellBank,
    slots: &[BoundSlot],
    slot: Slot,
    index: usize,
    as_bytes: bool,
) -> ContractError {
    let Some(bound) = slots.get(index) else {
        return ContractError::SlotOutOfRange {
            slot,
            count: slots.len(),
        };
    };
    if let Some(output) = bound.overwritten_by {
        return ContractError::Overwritten {
            input: slot,
            output: Slot::Output(output),
        };
    }
    let is_output = matches!(slot, Slot::Output(_));
    if is_output && bound.alias == Some(Alias::View) {
        return ContractError::ViewOutput { output: slot };
    }
    if !as_bytes && bound.element != T::DTYPE {
        return ContractError::WrongType {
            slot,
            found: bound.desc.dtype(),
            expected: T::DTYPE,
        };
    }
    let location = bound.desc.location();
    if !location.is_host() {
        return ContractError::NotOnHost { slot, location };
    }
    if !as_bytes && !is_slice(&bound.desc) {
        return ContractError::NotContiguous {
            slot,
            layout: bound.desc.to_string(),
        };
    }
    let Some(region) = bank.cell(bound.cell).region() else {
        return ContractError::Empty { slot };
    };
    if is_output && region.is_shared() {
        return ContractError::ReadOnly { slot };
    }
    if !region.is_idle() {
        return ContractError::InUse { slot };
    }
    let refusal = if region.location() != location {
        Refusal::WrongLocation {
            found: region.location(),
            expected: location,
        }
    } else if region.len() < bound.end {
        Refusal::TooSmall {
            found: region.len(),
            expected: bound.end,
        }
    } else {
        Refusal::Misaligned {
            address: region.address().plus(bound.start),
            align: align_of::<T>(),
        }
    };
    ContractError::Misfit { slot, refusal }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "bank_tests.rs"]
mod tests;
