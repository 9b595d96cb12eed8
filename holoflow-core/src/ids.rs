//! Numbers with names: which kind of thing an index counts.
//!
//! An id is an index in a plan; it owns nothing and promises nothing about what it counts.

use std::fmt;

use serde::Serialize;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The id that counts as `index`.
            #[must_use]
            pub const fn new(index: u32) -> Self {
                Self(index)
            }

            /// The index that it counts.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

ids! {
    /// A node of a graph, in the order of the compiled plan.
    NodeId,
    /// A logical value: one output of one node.
    TensorId,
    /// A backing region; several tensors may share one.
    StorageId,
    /// The sync nodes that run as one serial unit.
    SectionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_and_serialises_as_its_number() {
        let id = TensorId::new(7);
        assert_eq!(id.to_string(), "7");
        assert_eq!(id.index(), 7);
        assert_eq!(serde_json::to_value(id).unwrap(), serde_json::json!(7));
    }
}
