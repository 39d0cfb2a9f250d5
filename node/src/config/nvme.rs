//! `[nvme]`: how much of a disk the node takes for blocks.

use serde::Deserialize;
use std::path::PathBuf;

/// `[nvme]`
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NvmeSettings {
    /// Size of the tier.
    pub(crate) mib: NvmeSize,
    /// Folder in which the tier makes its folder `nvme`; empty is the data folder.
    pub(crate) dir: PathBuf,
    /// Threads that read and write.
    pub(crate) threads: usize,
}

impl Default for NvmeSettings {
    fn default() -> Self {
        Self { mib: NvmeSize::Auto, dir: PathBuf::new(), threads: 4 }
    }
}

/// Size of the NVMe tier.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(try_from = "Given")]
pub(crate) enum NvmeSize {
    /// A share of the disk.
    Auto,
    /// So many MiB; 0 goes without.
    Mib(u64),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of MiB, or \"auto\"")]
enum Given {
    Number(u64),
    Word(String),
}

impl TryFrom<Given> for NvmeSize {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        match given {
            Given::Number(mib) => Ok(Self::Mib(mib)),
            Given::Word(word) if word == "auto" => Ok(Self::Auto),
            Given::Word(word) => {
                Err(format!("expected a number of MiB, or \"auto\", not {word:?}"))
            }
        }
    }
}

/// Most that `auto` takes.
const AUTO_MOST: u64 = 8 << 30;
/// `auto` takes whole steps, so that a disk that fills slowly does not shrink the tier at each start.
const AUTO_STEP: u64 = 256 << 20;

impl NvmeSize {
    /// The limit in bytes, where `room` bytes are free or the tier's already: `auto` takes a tenth of
    /// that, 8 GiB at most, and nothing from a disk with less than 2.5 GiB.
    pub(crate) fn bytes(self, room: u64) -> u64 {
        match self {
            Self::Mib(mib) => mib.saturating_mul(1 << 20),
            Self::Auto => (room / 10).min(AUTO_MOST) / AUTO_STEP * AUTO_STEP,
        }
    }
}

#[cfg(test)]
mod tests;
