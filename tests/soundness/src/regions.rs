//! Regions used twice: after they were published, committed or split, or written while they
//! are read.
//!
//! Each attack stands below the same program without the attack, which compiles.
//!
//! # A region published twice
//!
//! It is moved into the cell.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, region: Region, other: Region) -> TaskResult<OpResult> {
//!     ctx.publish(0, region)?;
//!     ctx.publish(1, other)?;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, region: Region, other: Region) -> TaskResult<OpResult> {
//!     ctx.publish(0, region)?;
//!     ctx.publish(1, region)?;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A region written after it was published
//!
//! As above.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, mut region: Region) -> TaskResult<OpResult> {
//!     region.as_mut_bytes()?.fill(1);
//!     ctx.publish(0, region)?;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, mut region: Region) -> TaskResult<OpResult> {
//!     ctx.publish(0, region)?;
//!     region.as_mut_bytes()?.fill(1);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A slice of a region that is published
//!
//! The slice borrows the region, which cannot move.
//!
//! ```
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, mut region: Region) -> TaskResult<OpResult> {
//!     let bytes = region.as_mut_bytes()?;
//!     bytes.fill(1);
//!     ctx.publish(0, region)?;
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! ```compile_fail,E0505
//! # use holoflow::prelude::*;
//! # use holoflow::storage::Region;
//! fn try_pop(ctx: &mut AsyncPopCtx<'_>, mut region: Region) -> TaskResult<OpResult> {
//!     let bytes = region.as_mut_bytes()?;
//!     ctx.publish(0, region)?;
//!     bytes.fill(1);
//!     Ok(OpResult::Ok)
//! }
//! ```
//!
//! # A window used after its commit
//!
//! It is the consumer side's now.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let mut sides = Sides::new();
//! let slot = RegionSlot::new(&sides, stray())?;
//! let producer = sides.split().0;
//! let mut window = slot.acquire(producer)?.expect("free");
//! window.as_mut_bytes()?.fill(1);
//! slot.commit(producer, window)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```compile_fail,E0382
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let mut sides = Sides::new();
//! let slot = RegionSlot::new(&sides, stray())?;
//! let producer = sides.split().0;
//! let mut window = slot.acquire(producer)?.expect("free");
//! slot.commit(producer, window)?;
//! window.as_mut_bytes()?.fill(1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A window used after its release
//!
//! As above.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! fn release(slot: &RegionSlot, sides: &mut Sides) -> Result<(), Box<dyn std::error::Error>> {
//!     let consumer = sides.split().1;
//!     let window = slot.pop(consumer)?.expect("filled");
//!     assert_eq!(window.len(), 4);
//!     slot.release(consumer, window)?;
//!     Ok(())
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! fn release(slot: &RegionSlot, sides: &mut Sides) -> Result<(), Box<dyn std::error::Error>> {
//!     let consumer = sides.split().1;
//!     let window = slot.pop(consumer)?.expect("filled");
//!     slot.release(consumer, window)?;
//!     assert_eq!(window.len(), 4);
//!     Ok(())
//! }
//! ```
//!
//! # A region read while it is written
//!
//! Bytes are reached through the region.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let mut region = stray();
//! let read = region.as_bytes()?;
//! assert_eq!(read[0], 0);
//! let written = region.as_mut_bytes()?;
//! written[0] = 1;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```compile_fail,E0502
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let mut region = stray();
//! let read = region.as_bytes()?;
//! let written = region.as_mut_bytes()?;
//! written[0] = 1;
//! assert_eq!(read[0], 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A region written twice at once
//!
//! As above.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let mut region = stray();
//! let first = region.as_mut_bytes()?;
//! first[0] = 1;
//! let second = region.as_mut_slice::<u32>()?;
//! second[0] = 2;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```compile_fail,E0499
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let mut region = stray();
//! let first = region.as_mut_bytes()?;
//! let second = region.as_mut_slice::<u32>()?;
//! second[0] = 2;
//! first[0] = 1;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A region read after it is gone
//!
//! The slice lives no longer than the region.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! let bytes = region.as_bytes()?;
//! assert_eq!(bytes[0], 0);
//! drop(region);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```compile_fail,E0505
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! let bytes = region.as_bytes()?;
//! drop(region);
//! assert_eq!(bytes[0], 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A region split while a slice of it lives
//!
//! The parts would write what the slice reads.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! let bytes = region.as_bytes()?;
//! assert_eq!(bytes[0], 0);
//! let (mut head, _tail) = region.split_at(2).expect("2 of 4");
//! head.as_mut_bytes()?.fill(1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```compile_fail,E0505
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! let bytes = region.as_bytes()?;
//! let (mut head, _tail) = region.split_at(2).expect("2 of 4");
//! head.as_mut_bytes()?.fill(1);
//! assert_eq!(bytes[0], 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A region written through a shared reference
//!
//! Reading is all that a shared reference gives.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! fn write(region: &mut Region) {
//!     if let Ok(bytes) = region.as_mut_bytes() {
//!         bytes.fill(1);
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0596
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! fn write(region: &Region) {
//!     if let Ok(bytes) = region.as_mut_bytes() {
//!         bytes.fill(1);
//!     }
//! }
//! ```
//!
//! # A region copied
//!
//! It is the one owner of its bytes.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! let second = region.into_shared().clone();
//! # drop(second);
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! let second = region.clone();
//! # drop(second);
//! ```
//!
//! # A buffer copied
//!
//! Its rest is one region.
//!
//! ```
//! # use holoflow::storage::TaskBuffer;
//! fn twice(buffer: &mut TaskBuffer) {
//!     let rest = buffer.take(1);
//!     assert!(rest.is_none());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::storage::TaskBuffer;
//! fn twice(buffer: &mut TaskBuffer) {
//!     let rest = buffer.clone().take(1);
//!     assert!(rest.is_none());
//! }
//! ```
//!
//! # An allocation copied
//!
//! It goes back once.
//!
//! ```
//! # use holoflow::memory::AllocationHandle;
//! fn twice(handle: AllocationHandle) -> [AllocationHandle; 1] {
//!     [handle]
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::memory::AllocationHandle;
//! fn twice(handle: AllocationHandle) -> [AllocationHandle; 1] {
//!     [AllocationHandle::clone(&handle)]
//! }
//! ```
//!
//! # A region made up
//!
//! Its fields are private.
//!
//! ```
//! # use holoflow::storage::Region;
//! fn forge(region: Region) {
//!     let Region { .. } = region;
//! }
//! ```
//!
//! ```compile_fail,E0451
//! # use holoflow::storage::Region;
//! fn forge(region: Region) {
//!     let Region { .. } = region;
//!     let forged = Region { body: todo!() };
//! }
//! ```
//!
//! # A shared region made wider
//!
//! The range that it shows is its own, within what its keeper keeps.
//!
//! ```
//! # use holoflow::storage::{Region, SharedRegion};
//! fn widen(mut shared: SharedRegion, bytes: usize) -> Region {
//!     shared = shared.clone();
//!     shared.to_region()
//! }
//! ```
//!
//! ```compile_fail,E0616
//! # use holoflow::storage::{Region, SharedRegion};
//! fn widen(mut shared: SharedRegion, bytes: usize) -> Region {
//!     shared.len = bytes;
//!     shared.to_region()
//! }
//! ```
//!
//! # A ring copied
//!
//! Two rings would hand out the same rows.
//!
//! ```
//! # use holoflow::storage::SlotRing;
//! fn twice(ring: SlotRing) -> [SlotRing; 1] {
//!     [ring]
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::storage::SlotRing;
//! fn twice(ring: SlotRing) -> [SlotRing; 1] {
//!     [SlotRing::clone(&ring)]
//! }
//! ```
//!
//! # A block given back by hand
//!
//! Only unsafe code gives a block back.
//!
//! ```
//! # use holoflow::memory::{Block, HostProvider, MemoryProvider};
//! let block: Block = HostProvider.allocate(16)?;
//! std::mem::forget(block);
//! # Ok::<(), holoflow::memory::MemoryError>(())
//! ```
//!
//! ```compile_fail,E0133
//! # use holoflow::memory::{Block, HostProvider, MemoryProvider};
//! let block: Block = HostProvider.allocate(16)?;
//! HostProvider.deallocate(block);
//! # Ok::<(), holoflow::memory::MemoryError>(())
//! ```
//!
//! # An address read
//!
//! Addresses are numbers.
//!
//! ```
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! assert_ne!(region.address().as_u64(), 0);
//! ```
//!
//! ```compile_fail,E0614
//! # use holoflow::memory::Memory;
//! # use holoflow::prelude::*;
//! # use holoflow::storage::{Region, RegionSlot, Sides, TaskBuffer};
//! # fn stray() -> Region {
//! #     TaskBuffer::allocate(&Memory::host(), MemLoc::Host, 4).expect("memory").into_region()
//! # }
//!
//! let region = stray();
//! assert_ne!(*region.address(), 0);
//! ```
