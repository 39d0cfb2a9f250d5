use super::*;

#[test]
fn trouble_stretches_limits_up_to_a_bound_and_passes() {
    let mut health = Health::default();
    let (mut now, limit) = (Time(1), Span::secs(2));
    assert_eq!(health.stretch(limit), limit);
    health.worse(now, 1);
    assert_eq!(health.stretch(limit), Span::secs(4));
    assert!(health.may_accuse());
    health.worse(now, 100);
    assert_eq!(health.stretch(limit), Span::secs(10));
    assert!(!health.may_accuse());
    for left in (0..4).rev() {
        health.ease(now);
        now += EASE_EVERY;
        health.ease(now);
        assert_eq!(health.score, left);
    }
}

#[test]
fn loneliness_counts_once_a_second() {
    let mut health = Health::default();
    for ms in 0..950 {
        health.lonely(Time(1) + Span::millis(ms));
    }
    assert_eq!(health.score, 1);
    health.lonely(Time(1) + Span::millis(1000));
    assert_eq!(health.score, 2);
}
