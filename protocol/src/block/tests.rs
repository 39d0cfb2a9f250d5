use super::*;
use crate::sign::Keypair;
use proptest::prelude::*;

fn namespace() -> StorageNamespace {
    StorageNamespace {
        block_tokens: 16,
        kv_dtype: "f32".into(),
        layout: "layer-1".into(),
        block_bytes: 4096,
        parts: vec![PartSpec { group: 0, tp_rank: 0, first_layer: 0, layers: 2 }],
        groups: vec![CacheRule::Full],
    }
}

#[test]
fn a_difference_of_namespaces_is_named() {
    type Change = fn(&mut StorageNamespace);
    let changes: [(&str, Change); 6] = [
        ("block_tokens", |n| n.block_tokens = 32),
        ("kv_dtype", |n| n.kv_dtype = "bf16".into()),
        ("layout", |n| n.layout = "layer-2".into()),
        ("block_bytes", |n| n.block_bytes += 1),
        ("parts", |n| n.parts[0].tp_rank = 1),
        ("groups", |n| n.groups = vec![CacheRule::Window(4096)]),
    ];
    let ours = namespace();
    assert_eq!(ours.differs(&namespace()), None);
    let mut all = namespace();
    for (at, (field, change)) in changes.iter().enumerate() {
        let mut theirs = namespace();
        change(&mut theirs);
        assert_eq!(ours.differs(&theirs), Some(*field));
        assert_eq!(theirs.differs(&ours), Some(*field));
        assert_ne!(ours.id(), theirs.id(), "{field}");
        // Of several differences the first is named.
        change(&mut all);
        assert_eq!(ours.differs(&all), Some(changes[0].0), "{at}");
    }
}

#[test]
fn the_short_name_of_a_namespace_is_stable() {
    assert_eq!(format!("{:?}", namespace().id()), "storage:b57e2703e3a1a996");
    let hash = blake3::hash(&crate::wire::encode(&namespace()).unwrap());
    let short = hash.as_bytes()[..8].try_into().unwrap();
    assert_eq!(namespace().id(), StorageId(u64::from_le_bytes(short)));
}

fn key(prefix: u128) -> BlockKey {
    BlockKey { prefix: PrefixHash(prefix), storage: StorageId(9) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_signed_digest_covers_its_block_only(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        prefix: u128,
        life: (u64, u64),
    ) {
        let signer = Keypair::from_seed(&[5; 32]);
        let incarnation = Incarnation { counter: life.0, nonce: life.1 };
        let signed =
            SignedDigest::sign(&signer, incarnation, key(prefix), ContentDigest::of(&bytes));
        prop_assert!(signed.covers(&key(prefix), &bytes));
        prop_assert!(!signed.covers(&key(!prefix), &bytes));
        prop_assert!(!signed.covers(&key(prefix), &bytes[1..]));
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= flip;
        prop_assert!(!signed.covers(&key(prefix), &damaged));
    }
}

#[test]
fn every_field_of_a_signed_digest_is_signed() {
    let (signer, bytes) = (Keypair::from_seed(&[5; 32]), b"bytes of a block");
    let life = Incarnation { counter: 3, nonce: 4 };
    let signed = SignedDigest::sign(&signer, life, key(1), ContentDigest::of(bytes));
    assert_eq!(signed.producer, signer.node());
    assert!(signed.covers(&key(1), bytes));

    // Each change keeps key and digest right for what is asked, so that only the signature is left
    // to notice it.
    let other = BlockKey { storage: StorageId(8), ..key(1) };
    assert!(!SignedDigest { key: other, ..signed.clone() }.covers(&other, bytes));
    let digest = ContentDigest::of(b"other bytes");
    assert!(!SignedDigest { digest, ..signed.clone() }.covers(&key(1), b"other bytes"));
    let producer = Keypair::from_seed(&[6; 32]).node();
    assert!(!SignedDigest { producer, ..signed.clone() }.covers(&key(1), bytes));
    for incarnation in [Incarnation { counter: 4, ..life }, Incarnation { nonce: 5, ..life }] {
        assert!(!SignedDigest { incarnation, ..signed.clone() }.covers(&key(1), bytes));
    }
    let signature = signer.sign(b"something else");
    assert!(!SignedDigest { signature, ..signed }.covers(&key(1), bytes));
}

#[test]
fn tiers_go_from_fast_to_slow() {
    assert!(Tier::Engine(EngineId(9)) < Tier::Dram);
    assert!(Tier::Dram < Tier::Nvme);
}
