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

#[test]
fn frames_about_records_go_to_their_machine_and_come_from_it() {
    use protocol::wire::state::StateFrame;
    let (peer, frame) = (NodeId([3; 32]), StateFrame::Kept { op: 4 });
    let out = delivered(Effect::State(state::Out::Send { to: peer, frame: frame.clone() }));
    let [Delivery::Direct { to, frame: sent }] = &out[..] else { panic!("{out:?}") };
    assert_eq!((to, sent), (&peer, &Direct::State(Box::new(frame.clone()))));
    let heard = hear(peer, sent.clone());
    let expected = state::In::Frame { from: peer, frame };
    assert!(matches!(heard, Input::State(input) if input == expected));
    let other = hear(peer, Direct::Ack { nonce: 5 });
    assert!(matches!(other, Input::Gossip(gossip::In::Direct { from, .. }) if from == peer));
}

#[test]
fn whoever_owns_records_hears_of_members() {
    let view = Box::new(MemberView {
        node: NodeId([3; 32]),
        incarnation: Incarnation::default(),
        state: protocol::event::MemberState::Dead,
        contact: Contact::default(),
        engines: Vec::new(),
        owed_bytes: 0,
        blocks: [0; 3],
    });
    let out = delivered(Effect::Gossip(gossip::Out::Member(view.clone())));
    let told = |delivery: &Delivery| match delivery {
        Delivery::Local(Input::State(state::In::Member(told))) => *told == view,
        _ => false,
    };
    assert!(out.iter().any(told), "{out:?}");
}
