//! Who and which: nodes, their lives, clusters, engines, requests, sessions, tenants.

use serde::{Deserialize, Serialize};
use std::fmt;

pub(crate) fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

/// Parses exactly `N` bytes of hexadecimal.
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != N * 2 {
        return None;
    }
    let mut out = [0u8; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digits = std::str::from_utf8(pair).ok()?;
        if !pair.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(out)
}

/// A node: the 32 bytes of its ed25519 public key, so that a signature can be checked with
/// nothing but the id. libp2p's PeerId is derived from the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub [u8; 32]);

impl NodeId {
    /// The first eight hexadecimal digits, for people; never used to tell nodes apart.
    pub fn short(&self) -> String {
        self.to_string().chars().take(8).collect()
    }

    /// Parses the 64 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node:{}", self.short())
    }
}

/// A cluster: derived from its issuing key when `start` makes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// Parses the 32 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One life of a node: a durable counter that grows with every boot, and a nonce drawn at boot.
/// A higher counter is a newer life; equal counters with unequal nonces are identity twins.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
pub struct Incarnation {
    /// Boot counter, from 1; durable.
    pub counter: u64,
    /// Random at boot; tells two processes with one identity apart.
    pub nonce: u64,
}

/// An engine of one node, numbered from 0 in the order of its configuration.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
pub struct EngineId(pub u16);

/// The unit of placement: one data-parallel rank of one engine in one life of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct Target {
    /// The node.
    pub node: NodeId,
    /// Its life; a restarted node is another target.
    pub incarnation: Incarnation,
    /// The engine on that node.
    pub engine: EngineId,
    /// Data-parallel rank inside the engine; 0 without data parallelism.
    pub dp_rank: u16,
}

/// One request, unique in the cluster (drawn at its entry node).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u128);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "req:{:08x}", self.0 >> 96)
    }
}

/// An agent session as the client names it; at most [`SessionId::MAX`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(try_from = "String")]
pub struct SessionId(String);

impl SessionId {
    /// Longest accepted id in bytes (the limit Dynamo documents too).
    pub const MAX: usize = 256;

    /// `None` when empty, longer than [`Self::MAX`], or with control characters.
    pub fn new(text: &str) -> Option<Self> {
        Self::is_fine(text).then(|| Self(text.to_owned()))
    }

    fn is_fine(text: &str) -> bool {
        !text.is_empty() && text.len() <= Self::MAX && !text.chars().any(char::is_control)
    }

    /// The id as the client sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Also what decoders ask: a peer's session id is held to the same rules.
impl TryFrom<String> for SessionId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if Self::is_fine(&text) { Ok(Self(text)) } else { Err("not a session id") }
    }
}

/// The owner of a key space of prefixes. Tenants never share blocks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct TenantId(pub String);

impl TenantId {
    /// The tenant of callers without a key, on loopback.
    pub fn local() -> Self {
        Self("local".into())
    }
}

#[cfg(test)]
mod tests;
