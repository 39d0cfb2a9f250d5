use super::Throttle;
use std::time::{Duration, Instant};

#[test]
fn pieces_follow_each_other_at_the_rate() {
    let throttle = Throttle::new(1000);
    let now = Instant::now();
    assert_eq!(throttle.reserve(now, 500), now, "the first goes at once");
    assert_eq!(throttle.reserve(now, 250), now + Duration::from_millis(500));
    assert_eq!(throttle.reserve(now, 1), now + Duration::from_millis(750));
}

#[test]
fn idle_time_is_not_saved_up() {
    let throttle = Throttle::new(1000);
    let now = Instant::now();
    throttle.reserve(now, 1000);
    let later = now + Duration::from_secs(60);
    assert_eq!(throttle.reserve(later, 1000), later);
    assert_eq!(throttle.reserve(later, 1000), later + Duration::from_secs(1));
}
