use super::*;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn silence_is_sickness_only_with_work_to_do() {
    let start = Instant::now();
    let pulse = Pulse::new(start);
    assert_eq!(pulse.health(start + seconds(100)), Health::Healthy);
    pulse.begin(start + seconds(100));
    assert_eq!(pulse.health(start + seconds(105)), Health::Healthy);
    assert!(matches!(pulse.health(start + seconds(106)), Health::Sick { .. }));
    // A new step does not hide that the last one never ended.
    pulse.begin(start + seconds(106));
    assert!(matches!(pulse.health(start + seconds(106)), Health::Sick { .. }));
    pulse.beat(start + seconds(107), Duration::ZERO);
    assert_eq!(pulse.health(start + seconds(111)), Health::Healthy);
    pulse.rest();
    assert_eq!(pulse.health(start + seconds(200)), Health::Healthy);
}

#[test]
fn slow_engines_get_more_time() {
    let start = Instant::now();
    let pulse = Pulse::new(start);
    pulse.begin(start);
    pulse.beat(start, seconds(2));
    assert_eq!(pulse.health(start + seconds(20)), Health::Healthy);
    assert!(matches!(pulse.health(start + seconds(21)), Health::Sick { .. }));
}

#[test]
fn death_is_final() {
    let start = Instant::now();
    let pulse = Pulse::new(start);
    pulse.die("reason".into());
    pulse.beat(start, Duration::ZERO);
    assert_eq!(pulse.health(start), Health::Died { reason: "reason".into() });
    assert_eq!(pulse.died().as_deref(), Some("reason"));
}
