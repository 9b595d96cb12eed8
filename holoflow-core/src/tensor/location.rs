//! Where memory is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::TensorError;

/// Where a tensor's bytes lie.
///
/// Written `Host`, `HostPinned`, `Device` (ordinal 0) or `Device:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemLoc {
    /// Plain host memory.
    Host,
    /// Host memory that a device copies from and to by itself.
    HostPinned,
    /// Memory of the device with this ordinal, which the host cannot read.
    Device(u32),
}

impl MemLoc {
    /// Whether the host can read and write it.
    #[must_use]
    #[inline]
    pub const fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::HostPinned)
    }

    /// Whether it is a device's.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// Ordinal of the device.
    #[must_use]
    pub const fn ordinal(self) -> Option<u32> {
        match self {
            Self::Device(ordinal) => Some(ordinal),
            Self::Host | Self::HostPinned => None,
        }
    }
}

impl fmt::Display for MemLoc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("Host"),
            Self::HostPinned => f.write_str("HostPinned"),
            Self::Device(0) => f.write_str("Device"),
            Self::Device(ordinal) => write!(f, "Device:{ordinal}"),
        }
    }
}

impl FromStr for MemLoc {
    type Err = TensorError;

    fn from_str(text: &str) -> Result<Self, TensorError> {
        let unknown = || TensorError::UnknownLocation {
            found: text.to_owned(),
        };
        match text {
            "Host" => Ok(Self::Host),
            "HostPinned" => Ok(Self::HostPinned),
            "Device" => Ok(Self::Device(0)),
            _ => {
                let ordinal = text.strip_prefix("Device:").ok_or_else(unknown)?;
                // Digits only: `parse` alone would take a sign.
                if !ordinal.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(unknown());
                }
                ordinal.parse().map(Self::Device).map_err(|_| unknown())
            }
        }
    }
}

impl Serialize for MemLoc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MemLoc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_written_and_read_as_graph_files_have_them() {
        for (location, text) in [
            (MemLoc::Host, "Host"),
            (MemLoc::HostPinned, "HostPinned"),
            (MemLoc::Device(0), "Device"),
            (MemLoc::Device(12), "Device:12"),
        ] {
            assert_eq!(
                serde_json::to_value(location).unwrap(),
                serde_json::json!(text)
            );
            assert_eq!(text.parse::<MemLoc>().unwrap(), location);
        }
        assert_eq!("Device:0".parse::<MemLoc>().unwrap(), MemLoc::Device(0));
    }

    #[test]
    fn t_13_unknown_mem_loc_text_is_an_error() {
        for text in [
            "",
            "host",
            "Device:",
            "Device:x",
            "Device:-1",
            "Device:+1",
            "Device:99999999999",
        ] {
            let error = text.parse::<MemLoc>().unwrap_err();
            assert_eq!(
                error,
                TensorError::UnknownLocation {
                    found: text.to_owned()
                }
            );
        }
    }
}
