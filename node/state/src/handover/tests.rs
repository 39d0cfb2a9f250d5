use super::*;
use crate::config::Config;
use crate::door::In;
use protocol::event::{MemberState, MemberView};
use protocol::id::Incarnation;
use protocol::machine::Machine;
use protocol::state::{Record, RecordId, RecordKey, RecordKind, Version};
use protocol::time::Span;

const NOW: Time = Time(1_000_000_000);

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn member(n: u8, state: MemberState) -> In {
    In::Member(Box::new(MemberView {
        node: node(n),
        incarnation: Incarnation { counter: 1, nonce: 0 },
        state,
        contact: Default::default(),
        engines: Vec::new(),
        owed_bytes: 0,
        blocks: [0; 3],
    }))
}

fn id(place: u8) -> RecordId {
    let key = RecordKey { place: [place; 16], name: [1; 16] };
    RecordId { key, kind: RecordKind::Response }
}

/// Node 1 of five, with a record at each of 100 places.
fn machine() -> State {
    let version = Version { counter: 1, writer: node(1), write: 1 };
    let (deleted, ttl) = (false, Span::secs(3600));
    let records =
        (0..100).map(|place| Record { id: id(place), version, deleted, ttl, value: vec![1] });
    let config = Config::new(node(1), Incarnation::default());
    let mut machine = State::new(config, NOW, records.collect());
    for n in 2..6 {
        machine.handle(NOW, member(n, MemberState::Alive), &mut Vec::new());
    }
    machine
}

fn tell(machine: &mut State) {
    let version = Version { counter: 1, writer: node(1), write: 1 };
    let held = (0..100).map(|place| Holding { id: id(place), version }).collect::<Vec<_>>();
    for from in (2..6).map(node) {
        let frame = StateFrame::Holds(held.clone());
        machine.handle(NOW, In::Frame { from, frame }, &mut Vec::new());
    }
}

#[test]
fn only_of_what_this_node_does_not_own_it_is_noted_which_owners_have_it() {
    let mut machine = machine();
    tell(&mut machine);
    let mut others = 0;
    for place in 0..100 {
        let owners = machine.view.owners(&[place; 16]);
        let entry = machine.table.get(NOW, &id(place)).unwrap();
        if owners.contains(&node(1)) {
            assert!(entry.had_by.1.is_empty());
        } else {
            others += 1;
            assert_eq!(entry.had_by.1.len(), owners.len());
            assert!(all_have(entry, machine.view.changes(), &owners));
        }
    }
    assert!((10..90).contains(&others), "{others}");
}

#[test]
fn what_was_noted_ends_with_the_state_of_the_members() {
    let mut machine = machine();
    tell(&mut machine);
    machine.handle(NOW, member(5, MemberState::Dead), &mut Vec::new());
    for place in 0..100 {
        let owners = machine.view.owners(&[place; 16]);
        let entry = machine.table.get(NOW, &id(place)).unwrap();
        assert!(!all_have(entry, machine.view.changes(), &owners));
    }
}
