//! Frames of `dn-join/1`: the only bytes of a stranger that are ever parsed.
//!
//! At most 4 KiB from a stranger, within 5 s, 16 at once. Both sides prove the token's secret over
//! the TLS exporter, so that neither a relay nor a fake member learns anything.

use crate::event::Contact;
use crate::id::NodeId;
use crate::trust::{MemberCert, TokenFields};
use serde::{Deserialize, Serialize};

/// Longest request of a stranger in bytes.
pub const REQUEST_MAX: usize = 4096;
/// Longest answer in bytes.
pub const ANSWER_MAX: usize = 1 << 20;
/// Label of the TLS exporter.
pub const EXPORTER_LABEL: &[u8] = b"dynamo-node join 1";

/// A stranger asks to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct JoinRequest {
    /// Newest protocol version spoken.
    pub version: u16,
    /// Version of the prefix hash.
    pub hash_version: u16,
    /// The token's public fields.
    pub token: TokenFields,
    /// Proof of the token's secret as joiner.
    pub proof: [u8; 32],
    /// Who asks; equal to the key of its TLS certificate.
    pub node: NodeId,
}

/// The member's answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// Welcome.
    Admitted(Box<Admission>),
    /// No.
    Refused(JoinRefusal),
}

/// What an admitted node receives. Holds secrets: no `Debug`, sent only inside the join stream.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Proof of the token's secret as member.
    pub proof: [u8; 32],
    /// The newcomer's certificate.
    pub cert: MemberCert,
    /// Pre-shared key of the libp2p swarm.
    pub swarm_key: [u8; 32],
    /// Salt root, with its version.
    pub salt_root: (u16, [u8; 32]),
    /// The issuing key's seed, for members labelled `issuer`.
    pub issuing_seed: Option<[u8; 32]>,
    /// Members known here: certificates and where they are.
    pub members: Vec<(MemberCert, Contact)>,
}

/// Why a join is refused.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, thiserror::Error)]
pub enum JoinRefusal {
    /// Wrong secret, or another cluster's token.
    #[error("the join token is not valid for this cluster")]
    BadToken,
    /// Expired.
    #[error("the join token has expired; make a new one with `dynamo-node token` on a member")]
    Expired,
    /// All uses spent at this member.
    #[error("the join token has been used up; make a new one with `dynamo-node token` on a member")]
    UsedUp,
    /// This member cannot admit.
    #[error("this member has no issuing key; join through a member labelled `issuer`")]
    NotIssuer,
    /// Versions differ; names the field.
    #[error("the versions differ in `{0}`; install the same release on both machines")]
    Version(String),
    /// A live member has this identity already.
    #[error(
        "a live member has this identity; start with a data folder of its own or --new-identity"
    )]
    Twin,
    /// Too many joins at once.
    #[error("too many nodes are joining; try again in a few seconds")]
    Busy,
}
