use super::*;
use proptest::prelude::*;

fn origin() -> Keypair {
    Keypair::from_seed(&[1; 32])
}

fn batch(seq: u64, previous: [u8; 32]) -> EventBatch {
    EventBatch {
        origin: origin().node(),
        incarnation: Incarnation { counter: 2, nonce: 3 },
        seq: Seq(seq),
        previous,
        digest: SetDigest { count: 4, mix: 5 },
        payload: vec![6, 7],
        signature: origin().sign(b""),
    }
    .sign(&origin())
}

#[test]
fn every_field_of_a_batch_is_signed() {
    type Change = fn(&mut EventBatch);
    let changes: [(&str, Change); 10] = [
        ("origin", |b| b.origin = Keypair::from_seed(&[2; 32]).node()),
        ("counter", |b| b.incarnation.counter += 1),
        ("nonce", |b| b.incarnation.nonce += 1),
        ("seq", |b| b.seq.0 += 1),
        ("previous", |b| b.previous[31] ^= 1),
        ("count", |b| b.digest.count += 1),
        ("mix", |b| b.digest.mix += 1),
        ("payload", |b| b.payload[0] ^= 1),
        ("length", |b| b.payload.truncate(1)),
        ("signature", |b| b.signature = origin().sign(b"something else")),
    ];
    let genuine = batch(1, [0; 32]);
    assert!(genuine.is_genuine());
    for (field, change) in changes {
        let mut changed = genuine.clone();
        change(&mut changed);
        assert!(!changed.is_genuine(), "{field}");
        assert_eq!(changed.link() == genuine.link(), field == "signature", "{field}");
    }
    // A relay cannot sign in the origin's name.
    assert!(!genuine.sign(&Keypair::from_seed(&[2; 32])).is_genuine());
}

#[test]
fn a_chain_fixes_all_that_came_before() {
    let first = batch(1, [0; 32]);
    let second = batch(2, first.link());
    let other_first = EventBatch { payload: vec![9], ..first.clone() }.sign(&origin());
    assert!(other_first.is_genuine());
    assert_eq!(second.previous, first.link());
    assert_ne!(second.previous, other_first.link());
    assert_ne!(second.link(), batch(2, other_first.link()).link());
}

/// The layout of docs/formats.md, put together by hand.
#[test]
fn the_signed_bytes_of_a_batch_follow_the_documented_layout() {
    let batch = batch(1, [8; 32]);
    let mut bytes = b"dynamo-node event batch 1".to_vec();
    bytes.extend(batch.origin.0);
    bytes.extend([2, 3, 1]);
    bytes.extend([8; 32]);
    bytes.extend([4, 5]);
    bytes.extend([2, 6, 7]);
    assert_eq!(batch.signed_bytes(), bytes);
    assert_eq!(batch.link(), *blake3::hash(&bytes).as_bytes());
}

fn report() -> EngineReport {
    EngineReport {
        engine: EngineId(0),
        kind: "embedded".into(),
        model: "m".into(),
        routing: [1; 32],
        card: BlobDigest([2; 32]),
        storage: StorageId(2),
        block_bytes: 3,
        block_tokens: 16,
        context: 4,
        load: EngineLoad { prefill_rate: 100.0, ..EngineLoad::default() },
    }
}

fn heartbeat() -> Heartbeat {
    let mut beat = Heartbeat {
        node: origin().node(),
        incarnation: Incarnation { counter: 2, nonce: 3 },
        beat: 4,
        head: Seq(5),
        digest: SetDigest { count: 6, mix: 7 },
        contact: Contact {
            cluster: vec!["10.0.0.1:7600".into()],
            http: "http://10.0.0.1:8000".into(),
            site: "here".into(),
        },
        engines: vec![report()],
        owed_bytes: 8,
        draining: false,
        blocks: [9, 10, 11],
        signature: origin().sign(b""),
    };
    beat.signature = origin().sign(&beat.signed_bytes());
    beat
}

#[test]
fn every_field_of_a_heartbeat_is_signed() {
    type Change = fn(&mut Heartbeat);
    let changes: [(&str, Change); 16] = [
        ("node", |b| b.node = Keypair::from_seed(&[2; 32]).node()),
        ("counter", |b| b.incarnation.counter += 1),
        ("nonce", |b| b.incarnation.nonce += 1),
        ("beat", |b| b.beat += 1),
        ("head", |b| b.head.0 += 1),
        ("count", |b| b.digest.count += 1),
        ("mix", |b| b.digest.mix += 1),
        ("cluster", |b| b.contact.cluster[0].push('0')),
        ("http", |b| b.contact.http.push('0')),
        ("site", |b| b.contact.site.clear()),
        ("engines", |b| b.engines.clear()),
        ("load", |b| b.engines[0].load.prefill_rate = 200.0),
        ("owed_bytes", |b| b.owed_bytes += 1),
        ("draining", |b| b.draining = true),
        ("blocks", |b| b.blocks[2] += 1),
        ("signature", |b| b.signature = origin().sign(b"something else")),
    ];
    let genuine = |beat: &Heartbeat| beat.signature.verify(&beat.node, &beat.signed_bytes());
    assert!(genuine(&heartbeat()));
    for (field, change) in changes {
        let mut changed = heartbeat();
        change(&mut changed);
        assert!(!genuine(&changed), "{field}");
    }
}

/// All fields but the signature, in order: a field that is added must be signed too.
#[test]
fn the_signed_bytes_of_a_heartbeat_are_its_encoding_without_the_signature() {
    let beat = heartbeat();
    let whole = crate::wire::encode(&beat).unwrap();
    let context = b"dynamo-node heartbeat 1".as_slice();
    assert_eq!(beat.signed_bytes(), [context, &whole[..whole.len() - 64]].concat());
}

#[test]
fn what_is_signed_for_one_purpose_does_not_serve_another() {
    let (batch, beat) = (batch(1, [0; 32]), heartbeat());
    assert!(!batch.signature.verify(&beat.node, &beat.signed_bytes()));
    assert!(!beat.signature.verify(&batch.origin, &batch.signed_bytes()));
}

type Entry = (Holder, StorageId, PrefixHash);

fn any_holder() -> impl Strategy<Value = Holder> {
    prop_oneof![
        any::<u16>().prop_map(|engine| Holder::Engine(EngineId(engine))),
        Just(Holder::Dram),
        Just(Holder::Nvme),
        any::<u16>().prop_map(|engine| Holder::Computing(EngineId(engine))),
    ]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    (any_holder(), any::<u64>().prop_map(StorageId), any::<u128>().prop_map(PrefixHash))
}

fn digest_of(entries: &[Entry]) -> SetDigest {
    let (origin, mut digest) = (origin().node(), SetDigest::default());
    entries.iter().for_each(|(holder, storage, prefix)| {
        digest.add(&origin, *holder, *storage, *prefix);
    });
    digest
}

proptest! {
    #[test]
    fn the_order_of_changes_does_not_matter(
        (entries, shuffled) in prop::collection::vec(any_entry(), 0..20)
            .prop_flat_map(|entries| (Just(entries.clone()), Just(entries).prop_shuffle())),
        gone in any::<prop::sample::Index>(),
    ) {
        let digest = digest_of(&entries);
        prop_assert_eq!(digest_of(&shuffled), digest);
        prop_assert_eq!(digest.count, entries.len() as u64);

        // What was added and removed again leaves no trace, whenever it was.
        let Some((holder, storage, prefix)) = entries.get(gone.index(entries.len().max(1))) else {
            return Ok(());
        };
        let mut less = digest;
        less.remove(&origin().node(), *holder, *storage, *prefix);
        let rest: Vec<Entry> = entries
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != gone.index(entries.len()))
            .map(|(_, entry)| *entry)
            .collect();
        prop_assert_eq!(less, digest_of(&rest));
    }

    #[test]
    fn one_other_entry_shows(
        entries in prop::collection::vec(any_entry(), 0..8),
        (one, other) in (any_entry(), any_entry()),
    ) {
        prop_assume!(one != other);
        let with = |entry| digest_of(&[entries.as_slice(), &[entry]].concat());
        prop_assert_ne!(with(one), with(other));
    }

    #[test]
    fn origins_do_not_share_digests((holder, storage, prefix) in any_entry()) {
        let digest = |origin| {
            let mut digest = SetDigest::default();
            digest.add(&origin, holder, storage, prefix);
            digest
        };
        prop_assert_ne!(digest(NodeId([1; 32])), digest(NodeId([2; 32])));
    }
}

/// The layout of docs/formats.md, put together by hand.
#[test]
fn mixes_follow_the_documented_layout() {
    let origin = [7; 32];
    let table = [
        (Holder::Engine(EngineId(0x0102)), [0, 2, 1]),
        (Holder::Dram, [1, 0, 0]),
        (Holder::Nvme, [2, 0, 0]),
        (Holder::Computing(EngineId(0x0102)), [3, 2, 1]),
    ];
    let mut sum = SetDigest::default();
    let mut mix = 0u128;
    for (holder, first) in table {
        sum.add(&NodeId(origin), holder, StorageId(5), PrefixHash(6));
        let input = [&first[..], &5u64.to_le_bytes(), &6u128.to_le_bytes()].concat();
        let hash = blake3::keyed_hash(&origin, &input);
        mix = mix.wrapping_add(u128::from_le_bytes(hash.as_bytes()[..16].try_into().unwrap()));
    }
    assert_eq!(sum, SetDigest { count: 4, mix });
}

#[test]
fn places_of_the_store_are_holders_of_the_index() {
    assert_eq!(Holder::from(Tier::Engine(EngineId(3))), Holder::Engine(EngineId(3)));
    assert_eq!(Holder::from(Tier::Dram), Holder::Dram);
    assert_eq!(Holder::from(Tier::Nvme), Holder::Nvme);
}

#[test]
fn a_member_is_a_target_in_its_life() {
    let incarnation = Incarnation { counter: 2, nonce: 3 };
    let view = MemberView {
        node: origin().node(),
        incarnation,
        state: MemberState::Alive,
        contact: Contact::default(),
        engines: Vec::new(),
        owed_bytes: 0,
        blocks: [0; 3],
    };
    let target = Target { node: origin().node(), incarnation, engine: EngineId(1), dp_rank: 0 };
    assert_eq!(view.target(EngineId(1)), target);
}
