//! What can go wrong when memory is asked for.

use crate::tensor::MemLoc;

/// Why memory could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// No provider serves the location.
    #[error(
        "no memory provider for {location}: this pipeline has {}; add one with Memory::with",
        list(.known)
    )]
    NoProvider {
        /// The location asked for.
        location: MemLoc,
        /// The locations that have a provider.
        known: Vec<MemLoc>,
    },
    /// The request can never be met: it is larger than an address range may be.
    #[error("{bytes} bytes of {location} memory are more than one allocation can hold")]
    TooLarge {
        /// The location asked for.
        location: MemLoc,
        /// The bytes asked for.
        bytes: usize,
    },
    /// The provider has no such memory now.
    #[error("out of {location} memory: {bytes} bytes asked for, {reason}")]
    Exhausted {
        /// The location asked for.
        location: MemLoc,
        /// The bytes asked for.
        bytes: usize,
        /// What the provider says.
        reason: String,
    },
}

fn list(locations: &[MemLoc]) -> String {
    if locations.is_empty() {
        return "none".to_owned();
    }
    locations
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_says_what_was_asked_and_what_there_is() {
        let no_provider = MemoryError::NoProvider {
            location: MemLoc::Device(1),
            known: vec![MemLoc::Host],
        };
        assert_eq!(
            no_provider.to_string(),
            "no memory provider for Device:1: this pipeline has Host; add one with Memory::with"
        );
        let too_large = MemoryError::TooLarge {
            location: MemLoc::Host,
            bytes: usize::MAX,
        };
        assert_eq!(
            too_large.to_string(),
            format!(
                "{} bytes of Host memory are more than one allocation can hold",
                usize::MAX
            )
        );
        let exhausted = MemoryError::Exhausted {
            location: MemLoc::Host,
            bytes: 64,
            reason: "the system allocator refused".into(),
        };
        assert_eq!(
            exhausted.to_string(),
            "out of Host memory: 64 bytes asked for, the system allocator refused"
        );
    }
}
