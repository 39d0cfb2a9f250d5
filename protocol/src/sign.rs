//! ed25519 signatures of nodes and issuers. Signing is deterministic, so machines stay pure.

use crate::id::NodeId;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature([u8; 32], [u8; 32]);

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(…)")
    }
}

impl Signature {
    /// Whether `signer` made this signature over `bytes` (strict verification: no malleable
    /// keys or signatures).
    pub fn verify(&self, signer: &NodeId, bytes: &[u8]) -> bool {
        let mut raw = [0u8; 64];
        let (r, s) = raw.split_at_mut(32);
        r.copy_from_slice(&self.0);
        s.copy_from_slice(&self.1);
        VerifyingKey::from_bytes(&signer.0)
            .and_then(|key| key.verify_strict(bytes, &ed25519_dalek::Signature::from_bytes(&raw)))
            .is_ok()
    }
}

/// A secret ed25519 key: a node's identity or a cluster's issuing key. Zeroed when dropped.
#[derive(Clone)]
pub struct Keypair(SigningKey);

impl fmt::Debug for Keypair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keypair({:?})", self.node())
    }
}

impl Keypair {
    /// From 32 secret bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The secret bytes, to store or to hand to an admitted issuer. Never log them.
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The public key as a node id.
    pub fn node(&self) -> NodeId {
        NodeId(self.0.verifying_key().to_bytes())
    }

    /// Signs `bytes`.
    pub fn sign(&self, bytes: &[u8]) -> Signature {
        let raw = self.0.sign(bytes).to_bytes();
        let (mut r, mut s) = ([0u8; 32], [0u8; 32]);
        let (first, second) = raw.split_at(32);
        r.copy_from_slice(first);
        s.copy_from_slice(second);
        Signature(r, s)
    }
}

#[cfg(test)]
mod tests;
