//! Reasoning that a client keeps for us and cannot read or change: `encrypted_content`.
//!
//! ChaCha20-Poly1305 under a key of the cluster and the tenant. The nonce is a keyed hash of the
//! text, so that equal texts give equal seals and no randomness is needed.

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
    /// The seal of a secret, which only nodes of the cluster know.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let derive = |context| blake3::derive_key(context, secret);
        let key = derive("dynamo-node 2026-11 sealed reasoning");
        Self {
            cipher: ChaCha20Poly1305::new(Key::from_slice(&key)),
            nonces: derive("dynamo-node 2026-11 sealed reasoning nonce"),
        }
    }

    /// A text for the client to bring back.
    pub(crate) fn close(&self, text: &str) -> String {
        let hash = blake3::keyed_hash(&self.nonces, text.as_bytes());
        let nonce = &hash.as_bytes()[..NONCE];
        let sealed =
            self.cipher.encrypt(Nonce::from_slice(nonce), text.as_bytes()).unwrap_or_default();
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode([nonce, &sealed].concat()))
    }

    /// The text; `None` when it was sealed elsewhere or changed.
    pub(crate) fn open(&self, sealed: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(VERSION)?).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
        String::from_utf8(self.cipher.decrypt(Nonce::from_slice(nonce), sealed).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_sealed_comes_back_and_nothing_else(text: String, at: usize, flip in 1u8..) {
            let seal = Seal::new(&[1; 32]);
            let sealed = seal.close(&text);
            prop_assert_eq!(seal.open(&sealed), Some(text.clone()));
            prop_assert_eq!(seal.close(&text), sealed.clone());
            prop_assert_eq!(Seal::new(&[2; 32]).open(&sealed), None);
            let mut bytes = URL_SAFE_NO_PAD.decode(&sealed[VERSION.len()..]).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            let changed = format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(bytes));
            prop_assert_eq!(seal.open(&changed), None);
        }

        #[test]
        fn foreign_text_opens_nothing(text: String) {
            prop_assert_eq!(Seal::new(&[1; 32]).open(&text), None);
            prop_assert_eq!(Seal::new(&[1; 32]).open(&format!("{VERSION}{text}")), None);
        }
    }
}
