//! First frame in each direction of every connection between members.

use crate::event::Contact;
use crate::id::{ClusterId, Incarnation, NodeId};
use crate::trust::MemberCert;
use serde::{Deserialize, Serialize};

/// Newest version of the member protocols that this build speaks.
pub const VERSION: u16 = 5;
/// Oldest version that it still speaks: no release had an earlier one.
pub const VERSION_MIN: u16 = 5;

/// What a member says first.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Hello {
    /// Newest version spoken.
    pub version: u16,
    /// Oldest version spoken.
    pub version_min: u16,
    /// Version of the prefix hash.
    pub hash_version: u16,
    /// The cluster.
    pub cluster: ClusterId,
    /// Who.
    pub node: NodeId,
    /// In which life.
    pub incarnation: Incarnation,
    /// Its right to belong.
    pub cert: MemberCert,
    /// Where it can be reached.
    pub contact: Contact,
}

/// Why two members cannot talk; names the field that differs.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, thiserror::Error)]
pub enum Mismatch {
    /// No common protocol version.
    #[error("no common protocol version (field `version`): ours {ours}, theirs {theirs}")]
    Version {
        /// Ours.
        ours: u16,
        /// Theirs.
        theirs: u16,
    },
    /// Prefixes are hashed differently.
    #[error("prefix hashes differ (field `hash_version`): ours {ours}, theirs {theirs}")]
    HashVersion {
        /// Ours.
        ours: u16,
        /// Theirs.
        theirs: u16,
    },
    /// Another cluster.
    #[error("the peer belongs to another cluster (field `cluster`)")]
    Cluster,
}

impl Hello {
    /// The version both speak, or why there is none.
    pub fn agree(&self, theirs: &Self) -> Result<u16, Mismatch> {
        if self.cluster != theirs.cluster {
            return Err(Mismatch::Cluster);
        }
        if self.hash_version != theirs.hash_version {
            return Err(Mismatch::HashVersion {
                ours: self.hash_version,
                theirs: theirs.hash_version,
            });
        }
        let common = self.version.min(theirs.version);
        if common < self.version_min || common < theirs.version_min {
            return Err(Mismatch::Version { ours: self.version, theirs: theirs.version });
        }
        Ok(common)
    }
}

#[cfg(test)]
mod tests;
