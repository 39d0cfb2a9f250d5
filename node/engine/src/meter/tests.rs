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
