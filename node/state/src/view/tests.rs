use super::*;

fn member(n: u8, state: MemberState, counter: u64) -> MemberView {
    MemberView {
        node: NodeId([n; 32]),
        incarnation: Incarnation { counter, nonce: 1 },
        state,
        contact: Default::default(),
        engines: Vec::new(),
        owed_bytes: 0,
        blocks: [0; 3],
    }
}

fn view_of(others: u8) -> View {
    let mut view = View::new(NodeId([1; 32]));
    for n in 2..others + 2 {
        assert_eq!(view.learn(Time(1), &member(n, MemberState::Alive, 1)), News::Owners);
    }
    view
}

#[test]
fn a_member_that_dies_moves_only_its_own_places() {
    let mut view = view_of(7);
    let places: Vec<[u8; 16]> = (0..200).map(|n| [n; 16]).collect();
    let before: Vec<_> = places.iter().map(|place| view.owners(place)).collect();
    let dead = NodeId([5; 32]);
    assert_eq!(view.learn(Time(2), &member(5, MemberState::Dead, 1)), News::Owners);
    let mut moved = 0;
    for (place, before) in places.iter().zip(before) {
        let after = view.owners(place);
        assert_eq!(after.len(), OWNERS);
        if before.contains(&dead) {
            moved += 1;
            assert_eq!(before.iter().filter(|owner| after.contains(owner)).count(), OWNERS - 1);
        } else {
            assert_eq!(after, before);
        }
        assert!(view.nearest(place, 8).contains(&dead));
    }
    // Three of eight members' shares.
    assert!((40..110).contains(&moved), "{moved}");
}

#[test]
fn suspects_own_and_the_dead_count_for_a_while() {
    let mut view = view_of(2);
    assert_eq!(view.learn(Time(2), &member(2, MemberState::Suspect, 1)), News::Missed);
    assert_eq!(view.learn(Time(3), &member(2, MemberState::Suspect, 1)), News::Nothing);
    assert_eq!(view.owners(&[9; 16]).len(), 3);
    assert_eq!(view.learn(Time(4), &member(2, MemberState::Dead, 1)), News::Owners);
    assert_eq!((view.owners(&[9; 16]).len(), view.known()), (2, 3));
    let dead_for = Span::secs(600);
    assert!(!view.forget(Time(5), dead_for));
    assert!(view.forget(Time(4) + dead_for, dead_for));
    assert_eq!(view.known(), 2);
    assert_eq!(view.learn(Time(7), &member(3, MemberState::Left, 1)), News::Owners);
    assert_eq!(view.known(), 1);
}

#[test]
fn a_new_life_may_have_lost_what_it_had() {
    let mut view = view_of(1);
    let before = view.changes();
    assert_eq!(view.learn(Time(2), &member(2, MemberState::Alive, 2)), News::Owners);
    assert!(view.changes() > before);
}

#[test]
fn who_was_only_heard_of_counts_and_owns_nothing() {
    let mut view = view_of(1);
    view.introduce(Time(2), NodeId([7; 32]));
    view.introduce(Time(2), NodeId([1; 32]));
    view.introduce(Time(2), NodeId([2; 32]));
    assert_eq!((view.known(), view.owners(&[9; 16]).len()), (3, 2));
    assert_eq!(view.learn(Time(3), &member(7, MemberState::Alive, 1)), News::Owners);
    assert_eq!(view.owners(&[9; 16]).len(), 3);
}

#[test]
fn owners_that_are_remembered_are_those_of_now() {
    let mut view = view_of(7);
    let places: Vec<[u8; 16]> = (0..50).map(|n| [n; 16]).collect();
    let states = [(3, MemberState::Dead, 1), (4, MemberState::Left, 1), (3, MemberState::Alive, 2)];
    for (n, state, counter) in states {
        for place in &places {
            view.owners(place);
        }
        view.learn(Time(2), &member(n, state, counter));
        for place in &places {
            assert_eq!(view.owners(place).to_vec(), view.ranked(place, true, OWNERS));
        }
    }
    view.leave();
    let me = NodeId([1; 32]);
    assert!(places.iter().all(|place| !view.owners(place).contains(&me)));
}
