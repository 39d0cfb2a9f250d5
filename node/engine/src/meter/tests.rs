use super::*;

/// A made-up engine: 1 ms per token, 500 ns per row and key.
fn step(rows: usize, start: u64) -> Step {
    let context = (0..rows as u64).map(|row| start + row + 1).sum();
    let elapsed = Duration::from_micros(rows as u64 * 1_000) + Duration::from_nanos(context * 500);
    Step { prefill: rows, decode: 0, context, elapsed }
}

#[test]
fn finds_the_cost_of_tokens_and_of_context() {
    let mut meter = Meter::default();
    assert_eq!((meter.prefill_rate(), meter.attention_ns(), meter.decode_ms()), (0.0, 0.0, 0.0));
    for _ in 0..50 {
        meter.step(step(64, 0));
        meter.step(step(64, 1_000));
    }
    assert!((meter.prefill_rate() - 1_000.0).abs() < 5.0, "{}", meter.prefill_rate());
    assert!((meter.attention_ns() - 500.0).abs() < 10.0, "{}", meter.attention_ns());
}

#[test]
fn only_pure_decode_steps_tell_the_decode_time() {
    let mut meter = Meter::default();
    meter.step(Step { prefill: 0, decode: 3, context: 9, elapsed: Duration::from_millis(8) });
    meter.step(Step { prefill: 64, decode: 3, context: 9, elapsed: Duration::from_millis(90) });
    assert!((meter.decode_ms() - 8.0).abs() < 1e-3);
}

#[test]
fn the_percentile_forgets_old_intervals() {
    let mut meter = Meter::default();
    meter.interval(Duration::from_secs(9));
    assert_eq!(meter.interval_p99(), Duration::from_secs(9));
    (0..INTERVALS).for_each(|_| meter.interval(Duration::from_millis(1)));
    assert_eq!(meter.interval_p99(), Duration::from_millis(1));
}

/// Prompt token, key and decode step, in the meter's units of cost.
fn costs(meter: &Meter) -> [f64; 3] {
    [meter.token_s, meter.key_s, meter.decode_s].map(|cost| cost.expect("it is measured"))
}

/// A step of each kind, all slower by `factor`.
fn all_kinds(meter: &mut Meter, factor: u32) {
    let decode = Step { prefill: 0, decode: 1, context: 9, elapsed: Duration::from_millis(8) };
    for step in [step(64, 0), step(64, 1_000), decode] {
        meter.step(Step { elapsed: step.elapsed * factor, ..step });
    }
}

#[test]
fn a_stall_moves_each_figure_by_a_bounded_share() {
    for kind in 0..3 {
        let mut meter = Meter::default();
        (0..50).for_each(|_| all_kinds(&mut meter, 1));
        let before = costs(&meter);
        let (prefill, start) = [(64, 0), (64, 1_000), (0, 0)][kind];
        let elapsed = Duration::from_secs(30);
        let decode = usize::from(prefill == 0);
        meter.step(Step { decode, elapsed, ..step(prefill, start) });
        let after = costs(&meter);
        let moved: Vec<f64> =
            after.iter().zip(before).map(|(after, before)| after / before).collect();
        assert!(moved[kind] > 1.1 && moved.iter().all(|m| *m < 1.61), "{kind}: {moved:?}");
    }
}

#[test]
fn a_lasting_change_gets_through_in_some_tens_of_steps() {
    let mut meter = Meter::default();
    (0..50).for_each(|_| all_kinds(&mut meter, 1));
    let fast = costs(&meter);
    (0..50).for_each(|_| all_kinds(&mut meter, 100));
    let slow = costs(&meter);
    (0..80).for_each(|_| all_kinds(&mut meter, 1));
    let again = costs(&meter);
    for kind in 0..3 {
        assert!((slow[kind] / fast[kind] - 100.0).abs() < 10.0, "{fast:?} {slow:?}");
        assert!((again[kind] / fast[kind] - 1.0).abs() < 0.1, "{fast:?} {again:?}");
    }
}

#[test]
fn a_figure_grows_from_zero() {
    let mut value = Some(0.0);
    (0..60).for_each(|_| smooth(&mut value, 1e-3));
    assert!(value.is_some_and(|value| value > 0.9e-3), "{value:?}");
}
