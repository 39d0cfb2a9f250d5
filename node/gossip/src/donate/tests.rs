use super::*;
use proptest::prelude::*;

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn parcels(count: u64, bytes: u64) -> Vec<Parcel> {
    (0..count).map(|nonce| (Direct::Probe { nonce }, bytes)).collect()
}

#[test]
fn peers_take_turns() {
    let mut donations = Donations::default();
    for n in [1, 2, 3] {
        assert!(donations.give(node(n), parcels(2, 10)));
    }
    let mut order = Vec::new();
    while let Some(to) = donations.next_turn() {
        donations.turn = Some(to);
        donations.sessions.get_mut(&to).unwrap().frames.pop_front();
        order.push(to.0[0]);
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn sessions_are_bounded_and_one_that_has_room_goes_on() {
    let mut donations = Donations::default();
    for n in 0..SESSIONS_MAX as u8 {
        assert!(donations.give(node(n), parcels(1, 10)));
    }
    assert!(!donations.give(node(200), parcels(1, 10)));
    assert!(donations.give(node(0), parcels(1, 10)));
    donations.stop(&node(0));
    assert!(donations.give(node(200), parcels(1, 10)));
    assert!(!donations.cut_done(&node(200)), "nothing is being cut");
}

#[test]
fn a_pause_earns_no_more_than_a_burst_and_a_debt_is_waited_out() {
    let mut donations = Donations::default();
    donations.give(node(1), parcels(1, 10));
    donations.earn(Time(1) + Span::secs(100), 1_000_000);
    assert_eq!(donations.credit, 100_000);
    donations.credit = -500_000;
    let wait = donations.due(1_000_000).unwrap().since(donations.paid_until);
    assert!((500.0..500.1).contains(&wait.as_ms()), "{wait:?}");
    donations.earn(donations.paid_until + wait, 1_000_000);
    assert!(donations.credit > 0);
}

proptest! {
    /// Waking when told is enough: one more frame can go then, and the rate is kept over time.
    #[test]
    fn each_wait_earns_the_next_frame(
        rate in 1u64..1 << 40,
        sizes in prop::collection::vec(1u64..1 << 22, 1..40),
    ) {
        let mut donations = Donations { paid_until: Time(1), ..Donations::default() };
        donations.give(node(1), parcels(1, 10));
        let (mut now, mut sent) = (Time(1), 0u128);
        for size in &sizes {
            now = donations.due(rate).unwrap();
            donations.earn(now, rate);
            prop_assert!(donations.credit > 0, "no second wait");
            donations.credit -= *size as i64;
            sent += u128::from(*size);
        }
        let last = u128::from(*sizes.last().unwrap());
        let earned = u128::from(rate) * u128::from(now.since(Time(1)).0) / 1_000_000_000;
        // Each wait is rounded to a nanosecond.
        let rounding = sizes.len() as u128 * (u128::from(rate) / 1_000_000_000 + 1);
        prop_assert!(sent - last <= earned + rounding, "{sent} {earned}");
    }
}
