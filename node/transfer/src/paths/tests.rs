use super::{PathStats, Paths};
use crate::config::Limits;
use protocol::id::NodeId;
use std::time::{Duration, Instant};

const PEER: NodeId = NodeId([7; 32]);
const SECOND: Duration = Duration::from_secs(1);

fn only(paths: &Paths, now: Instant) -> PathStats {
    paths.stats(now).into_iter().find(|stats| stats.node == PEER).unwrap()
}

#[test]
fn a_failed_peer_costs_nothing_until_its_probe() {
    let paths = Paths::new(&Limits::default());
    let start = Instant::now();
    assert_eq!(paths.admit(&PEER, start), Ok(()));
    paths.failed(&PEER, start);
    assert_eq!(paths.admit(&PEER, start), Err(SECOND));
    assert_eq!(only(&paths, start).quarantined_ms, Some(1000));
    assert_eq!(paths.admit(&PEER, start + SECOND), Ok(()), "the probe");
    assert!(paths.admit(&PEER, start + SECOND).is_err(), "one probe at a time");
    paths.answered(&PEER, Duration::from_millis(3));
    assert_eq!(paths.admit(&PEER, start + SECOND), Ok(()));
    let stats = only(&paths, start);
    assert_eq!((stats.failures, stats.quarantined_ms, stats.rtt_ms), (1, None, Some(3.0)));
}

#[test]
fn quarantine_doubles_up_to_its_limit() {
    let paths = Paths::new(&Limits::default());
    let now = Instant::now();
    let mut spans = Vec::new();
    for _ in 0..40 {
        paths.failed(&PEER, now);
        spans.push(paths.admit(&PEER, now).unwrap_err().as_secs());
    }
    assert_eq!(spans.get(..7), Some(&[1, 2, 4, 8, 16, 30, 30][..]));
    assert_eq!(spans.last(), Some(&30));
    paths.readmit(&PEER);
    assert_eq!(paths.admit(&PEER, now), Ok(()));
}

#[test]
fn bandwidth_leaves_out_the_round_trip_and_small_fetches() {
    let paths = Paths::new(&Limits::default());
    let rtt = Duration::from_millis(100);
    paths.fetched(&PEER, 1000, SECOND, rtt);
    assert_eq!(only(&paths, Instant::now()).bandwidth_bytes_s, None);
    paths.fetched(&PEER, 1 << 20, rtt + SECOND, rtt);
    let first = only(&paths, Instant::now()).bandwidth_bytes_s.unwrap();
    assert!((first - f64::from(1 << 20)).abs() < 1.0);
    paths.fetched(&PEER, 2 << 20, rtt + SECOND, rtt);
    let second = only(&paths, Instant::now()).bandwidth_bytes_s.unwrap();
    assert!((second - 1.3 * f64::from(1 << 20)).abs() < 1.0);
}

#[test]
fn wrong_blocks_are_counted_and_quarantine() {
    let paths = Paths::new(&Limits::default());
    let now = Instant::now();
    paths.sent_corrupt(&PEER, now);
    assert_eq!((only(&paths, now).corrupt, only(&paths, now).failures), (1, 1));
    assert!(paths.admit(&PEER, now).is_err());
}
