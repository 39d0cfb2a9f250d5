//! Who may belong: join tokens, membership certificates, swarm key and salt root (design §4.10).

use crate::id::{ClusterId, NodeId};
use crate::sign::{Keypair, Signature};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

/// Seconds since the Unix epoch; used only for validity of certificates and tokens.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Default,
)]
pub struct UnixTime(pub u64);

/// How long a membership certificate is valid: 7 days, renewed at half-life.
pub const CERT_SECONDS: u64 = 7 * 24 * 3600;

/// The label that lets a member admit others: it receives the issuing key.
pub const LABEL_ISSUER: &str = "issuer";

/// Longest token in hexadecimal digits.
const TOKEN_HEX_MAX: usize = 8192;

/// A token's public fields.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct TokenFields {
    /// The cluster.
    pub cluster: ClusterId,
    /// Public key of the issuer, so that a joiner knows whom it talks to.
    pub issuer: NodeId,
    /// Tells tokens apart; counts of uses are kept under it.
    pub serial: u64,
    /// Not valid after.
    pub expires: UnixTime,
    /// How often it may be used, counted per admitting node.
    pub uses: u32,
    /// Labels of the members it admits.
    pub labels: Vec<String>,
    /// Addresses (`ip:port`) to try, best first.
    pub addresses: Vec<String>,
}

/// A join token: its fields, and a secret both sides can prove without sending it.
#[derive(Clone)]
pub struct JoinToken {
    /// What it says.
    pub fields: TokenFields,
    secret: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken {{ serial: {}, secret: … }}", self.fields.serial)
    }
}

/// Why a token is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Not the form `dn1-<hex>`.
    #[error("this is not a join token (a token begins with dn1- and is one line)")]
    Malformed,
    /// The check value does not match.
    #[error("the join token is damaged or incomplete: copy the whole line again")]
    Damaged,
}

fn token_secret(issuing: &Keypair, fields: &TokenFields) -> Zeroizing<[u8; 32]> {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 join token");
    hasher.update(&*Zeroizing::new(issuing.seed()));
    hasher.update(&crate::wire::encode(fields).unwrap_or_default());
    Zeroizing::new(*hasher.finalize().as_bytes())
}

impl JoinToken {
    /// Makes the token for `fields`: its secret is derived from the issuing key, so that every
    /// member with that key can check it without a record of it.
    pub fn issue(issuing: &Keypair, fields: TokenFields) -> Self {
        let secret = token_secret(issuing, &fields);
        Self { fields, secret }
    }

    /// The proof for one TLS session: HMAC-like keyed BLAKE3 of role and exporter bytes. Roles
    /// differ, so that neither side can echo the other's proof.
    pub fn prove(&self, role: JoinRole, exporter: &[u8; 32]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(match role {
            JoinRole::Joiner => b"joiner",
            JoinRole::Member => b"member",
        });
        hasher.update(exporter);
        *hasher.finalize().as_bytes()
    }

    /// Whether `proof` is what [`Self::prove`] gives, in constant time.
    pub fn accepts(&self, role: JoinRole, exporter: &[u8; 32], proof: &[u8; 32]) -> bool {
        blake3::Hash::from_bytes(self.prove(role, exporter)) == blake3::Hash::from_bytes(*proof)
    }

    /// The token as one line of text. Secret: keep it in a file of mode 0600.
    pub fn to_text(&self) -> Zeroizing<String> {
        let fields = crate::wire::encode(&self.fields).unwrap_or_default();
        // Room for all at once: a buffer that grows leaves copies of the secret behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(32 + fields.len() + 4));
        bytes.extend(self.secret.iter());
        bytes.extend(fields);
        let check = blake3::hash(&bytes);
        bytes.extend(check.as_bytes().iter().take(4));
        let mut text = Zeroizing::new(String::with_capacity(4 + bytes.len() * 2));
        text.push_str("dn1-");
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
        text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
        text
    }

    /// Reads what [`Self::to_text`] wrote; surrounding white space is ignored.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let hex = text.trim().strip_prefix("dn1-").ok_or(TokenError::Malformed)?;
        let is_hex = hex.len().is_multiple_of(2) && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if hex.len() > TOKEN_HEX_MAX || !is_hex {
            return Err(TokenError::Malformed);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(hex.len() / 2));
        bytes.extend(
            hex.as_bytes()
                .chunks_exact(2)
                .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()),
        );
        let (body, check) =
            bytes.split_at_checked(bytes.len().wrapping_sub(4)).ok_or(TokenError::Damaged)?;
        if !blake3::hash(body).as_bytes().starts_with(check) {
            return Err(TokenError::Damaged);
        }
        let (secret, fields) = body.split_at_checked(32).ok_or(TokenError::Damaged)?;
        let fields = crate::wire::decode(fields).map_err(|_| TokenError::Damaged)?;
        let secret = Zeroizing::new(secret.try_into().map_err(|_| TokenError::Damaged)?);
        Ok(Self { fields, secret })
    }
}

/// Who proves knowledge of the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinRole {
    /// The node that wants in.
    Joiner,
    /// The member that admits.
    Member,
}

/// A member's right to belong, signed by the cluster's issuing key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct MemberCert {
    /// The cluster.
    pub cluster: ClusterId,
    /// The member.
    pub node: NodeId,
    /// When it was issued; renewed at half of its life. Not compared with the clock: a node whose
    /// clock is a little behind must be able to join.
    pub issued: UnixTime,
    /// Not valid after.
    pub expires: UnixTime,
    /// Labels, [`LABEL_ISSUER`] among them for members that may admit.
    pub labels: Vec<String>,
    /// By the issuing key.
    pub signature: Signature,
}

impl MemberCert {
    fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = b"dynamo-node member certificate 1".to_vec();
        let fields = (&self.cluster, &self.node, &self.issued, &self.expires, &self.labels);
        bytes.extend(crate::wire::encode(&fields).unwrap_or_default());
        bytes
    }

    /// Admits `node` from `now` for [`CERT_SECONDS`].
    pub fn issue(
        issuing: &Keypair,
        cluster: ClusterId,
        node: NodeId,
        labels: Vec<String>,
        now: UnixTime,
    ) -> Self {
        let mut cert = Self {
            cluster,
            node,
            issued: now,
            expires: UnixTime(now.0.saturating_add(CERT_SECONDS)),
            labels,
            signature: issuing.sign(b""),
        };
        cert.signature = issuing.sign(&cert.signed_bytes());
        cert
    }

    /// Whether `issuer` admitted this member to `cluster` and the certificate has not run out.
    pub fn is_valid(&self, issuer: &NodeId, cluster: ClusterId, now: UnixTime) -> bool {
        self.cluster == cluster
            && now <= self.expires
            && self.signature.verify(issuer, &self.signed_bytes())
    }
}

/// The cluster id that belongs to an issuing key.
pub fn cluster_of(issuer: &NodeId) -> ClusterId {
    let mut short = [0u8; 16];
    blake3::Hasher::new_derive_key("dynamo-node 2026-11 cluster id")
        .update(&issuer.0)
        .finalize_xof()
        .fill(&mut short);
    ClusterId(short)
}

#[cfg(test)]
mod tests;
