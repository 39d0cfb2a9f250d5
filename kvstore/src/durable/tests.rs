use super::*;
use proptest::prelude::*;
use protocol::block::BlockClass;
use protocol::id::SessionId;

fn at(s: u64) -> Time {
    Time::ZERO + Span::secs(s)
}

fn held(session: u32, priority: i32, pin: Option<u64>) -> Held {
    let session = SessionId::new(&format!("s{session}"));
    let owner = Arc::new(Owner { tenant: TenantId("t".into()), session });
    let level = Level::new(priority, BlockClass::Tools);
    Held { pin: pin.map(at), level, lapse: at(50), owner }
}

#[test]
fn spans_are_what_remains() {
    let stamp = Stamp { held: vec![held(1, 0, Some(40)), held(2, 9, None)], age: Some(at(70)) };
    let claims = to_disk(&stamp, at(10));
    let spans: Vec<_> = claims.iter().map(|claim| (claim.ttl, claim.max_age)).collect();
    assert_eq!(spans, [(Some(Span::secs(30)), Some(Span::secs(60))), (None, None)]);
    assert_eq!((claims[0].class, claims[1].priority), (BlockClass::Tools, 9));
    // A new life counts from its own start.
    let back = from_disk(&claims, at(3), &Limits::default()).unwrap();
    assert_eq!((back.age, back.held[0].pin), (Some(at(63)), Some(at(33))));
}

#[test]
fn a_legal_end_is_kept_without_claims_and_ends_what_it_finds() {
    let stamp = Stamp { held: Vec::new(), age: Some(at(70)) };
    let claims = to_disk(&stamp, at(10));
    assert_eq!(claims[0].max_age, Some(Span::secs(60)));
    assert!(from_disk(&claims, at(0), &Limits::default()).is_some());
    assert!(from_disk(&to_disk(&stamp, at(70)), at(0), &Limits::default()).is_none());
}

#[test]
fn the_disk_keeps_the_worthiest_and_pins_stay_within_the_limit() {
    let many: Vec<Held> = (0..12).map(|n| held(n, n as i32, Some(9999 + u64::from(n)))).collect();
    let claims = to_disk(&Stamp { held: many, age: None }, at(0));
    assert_eq!(claims.len(), DISK_CLAIMS_MAX);
    assert_eq!(claims.iter().map(|claim| claim.priority).min(), Some(4));
    let back = from_disk(&claims, at(0), &Limits::default()).unwrap();
    assert!(back.held.iter().all(|held| held.pin == Some(at(2 * 3600))));
}

proptest! {
    #[test]
    fn claims_come_back_as_they_went(
        claims in prop::collection::vec((0..20u32, -3..4i32, prop::option::of(11..90u64)), 0..8),
        age in prop::option::of(11..90u64),
    ) {
        let mut stamp = Stamp { held: Vec::new(), age: age.map(at) };
        claims.into_iter().for_each(|(session, priority, pin)| {
            stamp.add(held(session, priority, pin));
        });
        let back = from_disk(&to_disk(&stamp, at(10)), at(10), &Limits::default()).unwrap();
        let facts = |stamp: &Stamp| {
            let mut facts: Vec<_> = stamp
                .held
                .iter()
                .map(|held| (held.owner.session.clone(), held.level, held.pin))
                .collect();
            facts.sort();
            (facts, stamp.age)
        };
        if stamp.held.is_empty() {
            prop_assert_eq!(back.age, stamp.age);
        } else {
            prop_assert_eq!(facts(&back), facts(&stamp));
        }
    }
}
