//! What others keep for us and can neither read nor change: reasoning that clients bring back
//! (`encrypted_content`), and responses on the nodes that store them.
//!
//! ChaCha20-Poly1305 under a key of the cluster, the tenant and the purpose. The nonce is a keyed
//! hash of the content, so that equal contents give equal seals and no randomness is needed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};

/// Marks what was sealed here, and how.
const VERSION: &str = "dn1.";
/// Bytes of a nonce.
const NONCE: usize = 12;

/// Seals and opens.
#[derive(Clone)]
pub(crate) struct Seal {
    cipher: ChaCha20Poly1305,
    nonces: [u8; 32],
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Seal {
    /// The seal of reasoning under a secret, which only nodes of the cluster know.
    pub(crate) fn of_reasoning(secret: &[u8; 32]) -> Self {
        Self::new(secret, "dynamo-node 2026-11 sealed reasoning")
    }

    /// The seal of records under such a secret.
    pub(crate) fn of_records(secret: &[u8; 32]) -> Self {
        Self::new(secret, "dynamo-node 2026-11 sealed record")
    }

    fn new(secret: &[u8; 32], purpose: &str) -> Self {
        let key = blake3::derive_key(purpose, secret);
        Self {
            cipher: ChaCha20Poly1305::new(Key::from_slice(&key)),
            nonces: blake3::derive_key(&format!("{purpose} nonce"), secret),
        }
    }

    /// The content, sealed.
    pub(crate) fn seal(&self, content: &[u8]) -> Vec<u8> {
        let hash = blake3::keyed_hash(&self.nonces, content);
        let nonce = &hash.as_bytes()[..NONCE];
        let sealed = self.cipher.encrypt(Nonce::from_slice(nonce), content).unwrap_or_default();
        [nonce, &sealed].concat()
    }

    /// The content; `None` when it was sealed elsewhere or changed.
    pub(crate) fn unseal(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE)?;
        self.cipher.decrypt(Nonce::from_slice(nonce), sealed).ok()
    }

    /// A text for the client to bring back.
    pub(crate) fn close(&self, text: &str) -> String {
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(self.seal(text.as_bytes())))
    }

    /// The text; `None` when it was sealed elsewhere or changed.
    pub(crate) fn open(&self, sealed: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(VERSION)?).ok()?;
        String::from_utf8(self.unseal(&bytes)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_sealed_comes_back_and_nothing_else(text: String, at: usize, flip in 1u8..) {
            let seal = Seal::of_reasoning(&[1; 32]);
            prop_assert_eq!(Seal::of_records(&[1; 32]).open(&seal.close(&text)), None);
            let sealed = seal.close(&text);
            prop_assert_eq!(seal.open(&sealed), Some(text.clone()));
            prop_assert_eq!(seal.close(&text), sealed.clone());
            prop_assert_eq!(Seal::of_reasoning(&[2; 32]).open(&sealed), None);
            let mut bytes = URL_SAFE_NO_PAD.decode(&sealed[VERSION.len()..]).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            let changed = format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(bytes));
            prop_assert_eq!(seal.open(&changed), None);
        }

        #[test]
        fn foreign_text_opens_nothing(text: String) {
            prop_assert_eq!(Seal::of_reasoning(&[1; 32]).open(&text), None);
            prop_assert_eq!(Seal::of_reasoning(&[1; 32]).open(&format!("{VERSION}{text}")), None);
        }
    }
}
