//! What only unsafe code may promise, promised by safe code.
//!
//! Each attack stands below the same program without the attack, which compiles.
//!
//! # An element type of one's own
//!
//! Not every bit pattern need be a value of it.
//!
//! ```
//! # use holoflow::tensor::{DType, Element};
//! #[derive(Clone, Copy, Debug, Default, PartialEq)]
//! struct Flag(bool);
//!
//! assert_eq!(<u8 as Element>::DTYPE, DType::U8);
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::tensor::{DType, Element};
//! #[derive(Clone, Copy, Debug, Default, PartialEq)]
//! struct Flag(bool);
//!
//! impl Element for Flag {
//!     const DTYPE: DType = DType::U8;
//! }
//! ```
//!
//! # A side of one's own
//!
//! A cell believes the id of a token.
//!
//! ```
//! # use holoflow::storage::{ProducerSide, SideToken};
//! struct Skeleton;
//!
//! fn is_side<S: SideToken>() {}
//! is_side::<ProducerSide>();
//! ```
//!
//! ```compile_fail,E0277
//! # use holoflow::storage::{ProducerSide, SideToken};
//! struct Skeleton;
//!
//! impl SideToken for Skeleton {}
//! ```
//!
//! # Memory of one's own
//!
//! The storage layer makes slices of what a provider returns.
//!
//! ```
//! # use holoflow::memory::{Block, MemoryError, MemoryProvider};
//! # use holoflow::tensor::MemLoc;
//! #[derive(Debug)]
//! struct Liar;
//!
//! impl Liar {
//!     fn location(&self) -> MemLoc {
//!         MemLoc::Host
//!     }
//!
//!     fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
//!         Ok(Block::new(std::ptr::NonNull::dangling(), bytes))
//!     }
//! }
//! # assert!(Liar.location().is_host() && Liar.allocate(1).is_ok());
//! ```
//!
//! ```compile_fail,E0200
//! # use holoflow::memory::{Block, MemoryError, MemoryProvider};
//! # use holoflow::tensor::MemLoc;
//! #[derive(Debug)]
//! struct Liar;
//!
//! impl MemoryProvider for Liar {
//!     fn location(&self) -> MemLoc {
//!         MemLoc::Host
//!     }
//!
//!     fn allocate(&self, bytes: usize) -> Result<Block, MemoryError> {
//!         Ok(Block::new(std::ptr::NonNull::dangling(), bytes))
//!     }
//!
//!     unsafe fn deallocate(&self, _: Block) {}
//! }
//! ```
//!
//! # An event of one's own
//!
//! The host reads what an event calls done.
//!
//! ```
//! # use holoflow::device::{DeviceError, Event};
//! #[derive(Debug)]
//! struct Early;
//!
//! impl Early {
//!     fn is_complete(&self) -> Result<bool, DeviceError> {
//!         Ok(true)
//!     }
//!
//!     fn wait(&self) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//! }
//! # assert!(Early.is_complete().is_ok() && Early.wait().is_ok());
//! ```
//!
//! ```compile_fail,E0200
//! # use holoflow::device::{DeviceError, Event};
//! #[derive(Debug)]
//! struct Early;
//!
//! impl Event for Early {
//!     fn is_complete(&self) -> Result<bool, DeviceError> {
//!         Ok(true)
//!     }
//!
//!     fn wait(&self) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//! }
//! ```
//!
//! # A stream of one's own
//!
//! Later work relies on its order.
//!
//! ```
//! # use holoflow::device::{DeviceError, HostBackend, DeviceBackend, ReadyAfter, Stream, StreamKey};
//! # use holoflow::tensor::MemLoc;
//! #[derive(Debug)]
//! struct Unordered(StreamKey);
//!
//! impl Unordered {
//!     fn key(&self) -> StreamKey {
//!         self.0
//!     }
//!
//!     fn record(&self) -> Result<ReadyAfter, DeviceError> {
//!         HostBackend.create_stream()?.record()
//!     }
//!
//!     fn wait_for(&self, _: &ReadyAfter) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//!
//!     fn synchronize(&self) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//! }
//! # let stream = Unordered(StreamKey::fresh(MemLoc::Host));
//! # assert_eq!(stream.key(), stream.key());
//! # assert!(stream.wait_for(&stream.record()?).is_ok() && stream.synchronize().is_ok());
//! # Ok::<(), DeviceError>(())
//! ```
//!
//! ```compile_fail,E0200
//! # use holoflow::device::{DeviceError, HostBackend, DeviceBackend, ReadyAfter, Stream, StreamKey};
//! # use holoflow::tensor::MemLoc;
//! #[derive(Debug)]
//! struct Unordered(StreamKey);
//!
//! impl Stream for Unordered {
//!     fn key(&self) -> StreamKey {
//!         self.0
//!     }
//!
//!     fn record(&self) -> Result<ReadyAfter, DeviceError> {
//!         HostBackend.create_stream()?.record()
//!     }
//!
//!     fn wait_for(&self, _: &ReadyAfter) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//!
//!     fn synchronize(&self) -> Result<(), DeviceError> {
//!         Ok(())
//!     }
//! }
//! ```
//!
//! # A backend of one's own
//!
//! It makes such streams.
//!
//! ```
//! # use std::sync::Arc;
//! # use holoflow::device::{DeviceBackend, DeviceError, HostBackend, Stream};
//! # use holoflow::tensor::MemLoc;
//! #[derive(Debug)]
//! struct Backend;
//!
//! impl Backend {
//!     fn name(&self) -> &'static str {
//!         "liar"
//!     }
//!
//!     fn device(&self) -> MemLoc {
//!         MemLoc::Device(0)
//!     }
//!
//!     fn create_stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
//!         HostBackend.create_stream()
//!     }
//! }
//! # assert!(Backend.name() == "liar" && !Backend.device().is_host());
//! # assert!(Backend.create_stream().is_ok());
//! ```
//!
//! ```compile_fail,E0200
//! # use std::sync::Arc;
//! # use holoflow::device::{DeviceBackend, DeviceError, HostBackend, Stream};
//! # use holoflow::tensor::MemLoc;
//! #[derive(Debug)]
//! struct Backend;
//!
//! impl DeviceBackend for Backend {
//!     fn name(&self) -> &'static str {
//!         "liar"
//!     }
//!
//!     fn device(&self) -> MemLoc {
//!         MemLoc::Device(0)
//!     }
//!
//!     fn create_stream(&self) -> Result<Arc<dyn Stream>, DeviceError> {
//!         HostBackend.create_stream()
//!     }
//! }
//! ```
//!
//! # A location made a host's
//!
//! Locations are a closed set, and what is host memory is core's to say.
//!
//! ```
//! # use holoflow::tensor::MemLoc;
//! let location = MemLoc::Device(0);
//! assert!(!location.is_host());
//! ```
//!
//! ```compile_fail,E0599
//! # use holoflow::tensor::MemLoc;
//! let location = MemLoc::Unified(0);
//! assert!(!location.is_host());
//! ```
