//! The list of all golden values, and what can be done with each.

use crate::values::{ann, batch, bob, cert, contact, heartbeat, hello, key, signed_digest, token};
use protocol::block::{
    BlockKey, CacheRule, ContentDigest, PartSpec, SignedDigest, StorageNamespace,
};
use protocol::card::{BlobDigest, ModelCard};
use protocol::hash::{ClientSalt, HASH_VERSION, RoutingNamespace, Token};
use protocol::trust::JoinRole;
use protocol::wire::blobs::{BlobHead, BlobRequest};
use protocol::wire::blocks::{BlockHead, BlocksRequest};
use protocol::wire::join::{Admission, JoinAnswer, JoinRefusal, JoinRequest};
use protocol::wire::{WireError, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Decodes and encodes again.
pub(crate) type Recode = fn(&[u8]) -> Result<Vec<u8>, WireError>;

/// One golden value.
pub(crate) struct Case {
    /// Name of its file.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// What reads it; `None` for bytes that are signed and never read.
    pub(crate) recode: Option<Recode>,
}

/// A value that is written and read.
pub(crate) fn value<T>(name: &str, value: T) -> Case
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let bytes = encode(&value).unwrap();
    assert!(decode::<T>(&bytes).unwrap() == value, "{name} does not come back");
    let recode: Recode = |bytes| encode(&decode::<T>(bytes)?);
    Case { name: name.into(), bytes, recode: Some(recode) }
}

/// All variants of an enum, in the order of their numbers; there must be no more.
pub(crate) fn numbered<T>(name: &str, variants: Vec<(&str, T)>) -> Vec<Case>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let unknown = decode::<T>(&encode(&(variants.len() as u32)).unwrap()).err();
    let expected = format!("expected variant index 0 <= i < {}", variants.len());
    let refused = unknown.is_some_and(|error| error.to_string().contains(&expected));
    assert!(refused, "{name} has other variants than its fixtures");
    let numbered = |(number, (variant, v)): (usize, (&str, T))| {
        let case = value(&format!("{name}-{number}-{variant}"), v);
        assert_eq!(case.bytes[0] as usize, number, "{}", case.name);
        case
    };
    variants.into_iter().enumerate().map(numbered).collect()
}

fn signed(name: &str, bytes: Vec<u8>) -> Case {
    Case { name: name.into(), bytes, recode: None }
}

/// Every golden value.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = vec![value("handshake-hello", hello())];
    cases.extend(join());
    cases.extend(crate::gossip::cases());
    cases.extend(crate::serve::cases());
    cases.extend(crate::state::cases());
    cases.extend(blocks());
    cases.extend(blobs());
    cases.extend(structures());
    cases
}

fn admission() -> Admission {
    Admission {
        proof: token().prove(JoinRole::Member, &[0x44; 32]),
        cert: cert(bob()),
        swarm_key: [0x11; 32],
        salt_root: (1, [0x22; 32]),
        issuing_seed: Some([0x99; 32]),
        members: vec![(cert(ann().node()), contact())],
    }
}

fn join() -> Vec<Case> {
    let request = JoinRequest {
        version: 1,
        hash_version: HASH_VERSION,
        token: token().fields,
        proof: token().prove(JoinRole::Joiner, &[0x44; 32]),
        node: bob(),
    };
    let plain = Admission { issuing_seed: None, members: Vec::new(), ..admission() };
    let mut cases = vec![value("join-request", request)];
    cases.extend(numbered(
        "join-answer",
        vec![
            ("admitted", JoinAnswer::Admitted(Box::new(admission()))),
            ("refused", JoinAnswer::Refused(JoinRefusal::Version("hash_version".into()))),
        ],
    ));
    cases.push(value("join-answer-0-admitted-plain", JoinAnswer::Admitted(Box::new(plain))));
    cases.extend(numbered(
        "join-refusal",
        vec![
            ("bad-token", JoinRefusal::BadToken),
            ("expired", JoinRefusal::Expired),
            ("used-up", JoinRefusal::UsedUp),
            ("not-issuer", JoinRefusal::NotIssuer),
            ("version", JoinRefusal::Version("version".into())),
            ("twin", JoinRefusal::Twin),
            ("busy", JoinRefusal::Busy),
        ],
    ));
    cases
}

fn blocks() -> Vec<Case> {
    let request = BlocksRequest { keys: vec![key(1), key(2)], within_ms: 400 };
    let digest = Box::new(signed_digest());
    let mut cases = vec![value("blocks-request", request)];
    cases.extend(numbered(
        "blocks-head",
        vec![
            ("present", BlockHead::Present { digest, length: 737_280 }),
            ("absent", BlockHead::Absent),
            ("busy", BlockHead::Busy),
        ],
    ));
    cases
}

/// What is signed, hashed or written down.
fn blobs() -> Vec<Case> {
    let card = ModelCard {
        name: "SmolLM2-135M-Instruct".into(),
        aliases: vec!["small".into()],
        format: "hermes".into(),
        routing: RoutingNamespace {
            weights: [1; 32],
            tokenizer: [2; 32],
            lora: None,
            hash_version: HASH_VERSION,
        },
        stop_tokens: vec![Token(0), Token(2)],
        template: Some("{{ messages }}".into()),
        specials: vec![("bos_token".into(), "<s>".into())],
        tokenizer: BlobDigest([3; 32]),
    };
    let mut cases = vec![value("model-card", card)];
    cases.push(value("blobs-request", BlobRequest { digest: BlobDigest([3; 32]) }));
    cases.extend(numbered(
        "blobs-head",
        vec![
            ("present", BlobHead::Present { length: 2_104_556 }),
            ("absent", BlobHead::Absent),
            ("busy", BlobHead::Busy),
        ],
    ));
    cases
}

fn structures() -> Vec<Case> {
    let digest = signed_digest();
    let SignedDigest { key: block, digest: content, producer, incarnation, .. } = &digest;
    let storage = StorageNamespace {
        block_tokens: 16,
        kv_dtype: "f32".into(),
        layout: "layer(k:head-dim-token,v:head-token-dim)-1".into(),
        block_bytes: 737_280,
        parts: vec![PartSpec { group: 0, tp_rank: 0, first_layer: 0, layers: 30 }],
        groups: vec![CacheRule::Full],
    };
    let routing = RoutingNamespace {
        weights: [1; 32],
        tokenizer: [2; 32],
        lora: Some([3; 32]),
        hash_version: HASH_VERSION,
    };
    let mut cases = vec![
        value("trust-member-cert", cert(bob())),
        value("trust-token-fields", token().fields),
        signed("trust-token-text", token().to_text().as_bytes().to_vec()),
        value("block-signed-digest", digest.clone()),
        signed(
            "signed-block-digest",
            SignedDigest::signed_bytes(block, content, producer, *incarnation),
        ),
        signed("signed-event-batch", batch().signed_bytes()),
        signed("signed-heartbeat", heartbeat().signed_bytes()),
        value::<BlockKey>("block-key", key(1)),
        value::<ContentDigest>("block-content-digest", ContentDigest::of(b"")),
        value("block-storage-namespace", storage),
        value("hash-routing-namespace", routing),
        value("hash-client-salt", ClientSalt::of("mine")),
    ];
    cases.extend(numbered(
        "block-cache-rule",
        vec![
            ("full", CacheRule::Full),
            ("window", CacheRule::Window(4096)),
            ("state", CacheRule::State),
        ],
    ));
    cases
}
