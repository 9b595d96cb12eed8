//! The memory that a pipeline can draw on.

use super::{AllocationHandle, HostProvider, MemoryError, MemoryProvider};
use crate::sync::Arc;
use crate::tensor::MemLoc;

/// One provider for each memory location.
///
/// ```
/// use holoflow_core::memory::Memory;
/// use holoflow_core::tensor::MemLoc;
///
/// let memory = Memory::host();
/// let handle = memory.allocate(MemLoc::Host, 100)?;
/// assert_eq!(handle.size(), 100);
///
/// let error = memory.allocate(MemLoc::Device(0), 100).unwrap_err();
/// assert!(error.to_string().starts_with("no memory provider for Device"));
/// # Ok::<(), holoflow_core::memory::MemoryError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Memory {
    providers: Vec<Arc<dyn MemoryProvider>>,
}

impl Memory {
    /// No memory at all.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Plain host memory.
    #[must_use]
    pub fn host() -> Self {
        Self::none().with(Arc::new(HostProvider))
    }

    /// Adds a provider; it replaces an earlier one of the same location.
    #[must_use]
    pub fn with(mut self, provider: Arc<dyn MemoryProvider>) -> Self {
        let location = provider.location();
        self.providers.retain(|known| known.location() != location);
        self.providers.push(provider);
        self
    }

    /// Allocates `bytes` zeroed bytes.
    ///
    /// # Errors
    /// [`MemoryError::NoProvider`], or what the provider of `location` says.
    pub fn allocate(
        &self,
        location: MemLoc,
        bytes: usize,
    ) -> Result<AllocationHandle, MemoryError> {
        let provider = self
            .providers
            .iter()
            .find(|provider| provider.location() == location)
            .ok_or_else(|| MemoryError::NoProvider {
                location,
                known: self
                    .providers
                    .iter()
                    .map(|known| known.location())
                    .collect(),
            })?;
        let block = provider.allocate(bytes)?;
        Ok(AllocationHandle::new(block, bytes, Arc::clone(provider)))
    }
}
