use super::*;
use protocol::block::{BlockKey, SlotId, StorageId};
use protocol::event::{BlockEvent, Holder};
use protocol::hash::PrefixHash;

fn delivered(effect: Effect) -> Vec<Delivery> {
    let mut out = Vec::new();
    deliver(effect, &mut out);
    out
}

fn event() -> BlockEvent {
    BlockEvent::Stored {
        prefix: PrefixHash(7),
        tokens: 64,
        storage: StorageId(1),
        holder: Holder::Dram,
    }
}

#[test]
fn the_own_index_hears_of_a_block_before_the_peers() {
    let out = delivered(Effect::Store(kvstore::Out::Event(event())));
    assert!(
        matches!(
            &out[..],
            [
                Delivery::Local(Input::Router(router::In::Own(first))),
                Delivery::Local(Input::Gossip(gossip::In::Event(second))),
            ] if *first == event() && *second == event()
        ),
        "{out:?}"
    );
}

#[test]
fn a_donor_is_asked_and_its_answer_comes_back_to_gossip() {
    let to = NodeId([3; 32]);
    let ask = delivered(Effect::Gossip(gossip::Out::CutSnapshot { to, origins: vec![to] }));
    assert!(matches!(
        &ask[..],
        [Delivery::Local(Input::Router(router::In::CutSnapshot { to: peer, origins }))]
            if *peer == to && *origins == [to]
    ));
    let cut = delivered(Effect::Router(router::Out::SnapshotCut { to, snapshots: Vec::new() }));
    assert!(matches!(
        &cut[..],
        [Delivery::Local(Input::Gossip(gossip::In::SnapshotCut { to: peer, .. }))] if *peer == to
    ));
}

#[test]
fn every_effect_of_the_store_has_one_destination_but_events() {
    let lease = LeaseId(1);
    let out = delivered(Effect::Store(kvstore::Out::Refused(lease, Refusal::Gone)));
    assert!(matches!(&out[..], [Delivery::Refused(id, Refusal::Gone)] if *id == lease));
    let forget = DiskOp::Forget {
        slot: SlotId(3),
        key: BlockKey { prefix: PrefixHash(7), storage: StorageId(1) },
    };
    let out = delivered(Effect::Store(kvstore::Out::Disk(forget.clone())));
    assert!(matches!(&out[..], [Delivery::Disk(op)] if *op == forget));
    let out = delivered(Effect::Store(kvstore::Out::CancelFetch(OpId(4))));
    assert!(matches!(&out[..], [Delivery::CancelFetch(OpId(4))]));
}
