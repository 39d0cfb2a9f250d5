use super::Credits;
use protocol::id::NodeId;

#[test]
fn limits_hold_per_peer_and_in_all() {
    let (a, b, c) = (NodeId([1; 32]), NodeId([2; 32]), NodeId([3; 32]));
    let credits = Credits::new(2, 3);
    let first = credits.take(a).unwrap();
    let _second = credits.take(a).unwrap();
    assert!(credits.take(a).is_none(), "a is at its own limit");
    let third = credits.take(b).unwrap();
    assert!(credits.take(c).is_none(), "all together are at the limit");
    drop(third);
    assert!(credits.take(a).is_none());
    assert!(credits.take(c).is_some());
    drop(first);
    assert!(credits.take(a).is_some());
}
