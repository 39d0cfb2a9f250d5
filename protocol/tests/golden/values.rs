//! Fixed values from which the golden frames are put together.

use protocol::block::{BlockClass, BlockKey, Claim, ContentDigest, SignedDigest, StorageId};
use protocol::card::BlobDigest;
use protocol::event::{
    BucketDigests, Buckets, BucketsWanted, Contact, EngineLoad, EngineReport, EventBatch, EventRun,
    Heartbeat, Holder, Seq, SetDigest, Snapshot,
};
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, Incarnation, NodeId, SessionId, Target, TenantId};
use protocol::sign::Keypair;
use protocol::time::Span;
use protocol::trust::{JoinToken, LABEL_ISSUER, MemberCert, TokenFields, UnixTime, cluster_of};
use protocol::wire::encode;
use protocol::wire::handshake::Hello;

pub(crate) fn issuing() -> Keypair {
    Keypair::from_seed(&[0x99; 32])
}

pub(crate) fn ann() -> Keypair {
    Keypair::from_seed(&[0x0a; 32])
}

pub(crate) fn bob() -> NodeId {
    Keypair::from_seed(&[0x0b; 32]).node()
}

pub(crate) fn life() -> Incarnation {
    Incarnation { counter: 3, nonce: 0x1122_3344_5566_7788 }
}

pub(crate) fn cert(node: NodeId) -> MemberCert {
    let cluster = cluster_of(&issuing().node());
    let labels = vec![LABEL_ISSUER.into()];
    MemberCert::issue(&issuing(), cluster, node, labels, UnixTime(1_790_000_000))
}

pub(crate) fn token() -> JoinToken {
    let fields = TokenFields {
        cluster: cluster_of(&issuing().node()),
        issuer: issuing().node(),
        serial: 0x0102_0304_0506_0708,
        expires: UnixTime(1_790_086_400),
        uses: 256,
        labels: vec![LABEL_ISSUER.into()],
        addresses: vec!["10.0.0.1:7600".into(), "[2001:db8::1]:7600".into()],
    };
    JoinToken::issue(&issuing(), fields)
}

pub(crate) fn contact() -> Contact {
    Contact {
        cluster: vec!["10.0.0.1:7600".into(), "[2001:db8::1]:7600".into()],
        http: "http://10.0.0.1:8000".into(),
        site: "default".into(),
    }
}

pub(crate) fn hello() -> Hello {
    Hello {
        version: 1,
        version_min: 1,
        hash_version: 1,
        cluster: cluster_of(&issuing().node()),
        node: ann().node(),
        incarnation: life(),
        cert: cert(ann().node()),
        contact: contact(),
    }
}

pub(crate) fn prefix(n: u8) -> PrefixHash {
    PrefixHash(u128::from_le_bytes([n; 16]))
}

pub(crate) fn storage() -> StorageId {
    StorageId(0xfeed_f00d_0000_0001)
}

pub(crate) fn key(n: u8) -> BlockKey {
    BlockKey { prefix: prefix(n), storage: storage() }
}

pub(crate) fn signed_digest() -> SignedDigest {
    SignedDigest::sign(&ann(), life(), key(1), ContentDigest::of(b"the bytes of a block"))
}

/// Every kind of run, with every kind of holder.
pub(crate) fn runs() -> Vec<EventRun> {
    let (storage, hashes) = (storage(), vec![prefix(1), prefix(2)]);
    vec![
        EventRun::Stored {
            storage,
            holder: Holder::Engine(EngineId(1)),
            first: 64,
            hashes: hashes.clone(),
        },
        EventRun::Removed { storage, holder: Holder::Dram, first: 128, hashes: hashes.clone() },
        EventRun::Cleared { holder: Holder::Nvme },
        EventRun::Computing {
            storage,
            engine: EngineId(0),
            eta: Span::millis(250),
            first: 192,
            hashes,
        },
        EventRun::Cleared { holder: Holder::Computing(EngineId(2)) },
    ]
}

pub(crate) fn digest() -> SetDigest {
    let mut digest = SetDigest::default();
    for holder in [Holder::Engine(EngineId(1)), Holder::Dram, Holder::Nvme] {
        digest.add(&ann().node(), holder, storage(), prefix(1));
    }
    digest
}

pub(crate) fn batch() -> EventBatch {
    EventBatch {
        origin: ann().node(),
        incarnation: life(),
        seq: Seq(300),
        previous: [0x77; 32],
        digest: digest(),
        payload: encode(&runs()).unwrap(),
        signature: ann().sign(b""),
    }
    .sign(&ann())
}

pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        origin: ann().node(),
        incarnation: life(),
        watermark: Seq(300),
        link: batch().link(),
        digest: digest(),
        runs: runs().drain(..1).collect(),
    }
}

pub(crate) fn wanted() -> BucketsWanted {
    let mut digests = BucketDigests::default();
    let (holder, storage) = (Holder::Dram, storage());
    digests.add(prefix(1), SetDigest::of(&ann().node(), holder, storage, prefix(1)));
    BucketsWanted {
        origin: ann().node(),
        incarnation: life(),
        seq: Seq(300),
        digests: digests.to_vec(),
    }
}

pub(crate) fn buckets() -> Buckets {
    let Snapshot { origin, incarnation, watermark, link, digest, runs } = snapshot();
    let (buckets, part, parts) = (vec![1, 2], 0, 3);
    Buckets { origin, incarnation, watermark, link, digest, buckets, part, parts, runs }
}

pub(crate) fn load() -> EngineLoad {
    EngineLoad {
        prefill_tokens: 1200,
        running: 3,
        waiting: 1,
        seats: 16,
        active_blocks: 96,
        total_blocks: 4096,
        prefill_rate: 812.5,
        attention_ns: 0.25,
        decode_ms: 21.0,
    }
}

pub(crate) fn heartbeat() -> Heartbeat {
    let report = EngineReport {
        engine: EngineId(0),
        kind: "embedded".into(),
        model: "SmolLM2-135M-Instruct".into(),
        routing: [0x55; 32],
        card: BlobDigest([0x66; 32]),
        storage: storage(),
        block_bytes: 737_280,
        block_tokens: 16,
        context: 8192,
        load: load(),
    };
    let mut beat = Heartbeat {
        node: ann().node(),
        incarnation: life(),
        beat: 77,
        head: Seq(300),
        digest: digest(),
        contact: contact(),
        engines: vec![report],
        owed_bytes: 1 << 20,
        draining: false,
        blocks: [96, 1024, 0],
        signature: ann().sign(b""),
    };
    beat.signature = ann().sign(&beat.signed_bytes());
    beat
}

pub(crate) fn target() -> Target {
    Target { node: bob(), incarnation: life(), engine: EngineId(0), dp_rank: 0 }
}

pub(crate) fn claim(class: BlockClass) -> Claim {
    Claim {
        session: SessionId::new("agent-7/lead"),
        tenant: TenantId::local(),
        class,
        priority: -2,
        ttl: Some(Span::secs(300)),
        max_age: None,
    }
}
