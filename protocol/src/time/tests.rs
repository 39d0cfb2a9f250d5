use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn sums_and_differences_agree(start: u64, length: u64) {
        let (start, length) = (Time(start), Span(length));
        let end = start + length;
        prop_assert!(end >= start);
        prop_assert_eq!(start.since(end), Span::ZERO);
        if start.0.checked_add(length.0).is_some() {
            prop_assert_eq!(end.since(start), length);
            prop_assert_eq!(end - length, start);
        } else {
            prop_assert_eq!(end, Time(u64::MAX));
        }
    }

    #[test]
    fn milliseconds_keep_their_value(ms in 0.0f64..1e9) {
        let back = Span::from_ms(ms).as_ms();
        prop_assert!((back - ms).abs() <= 1e-6 + ms * 1e-12, "{back} {ms}");
    }
}

#[test]
fn nothing_wraps() {
    let mut time = Time(u64::MAX - 1);
    time += Span::secs(1);
    assert_eq!(time, Time(u64::MAX));
    assert_eq!(Time(5) - Span(6), Time::ZERO);
    assert_eq!(Span(u64::MAX) + Span(1), Span(u64::MAX));
    assert_eq!(Span(u64::MAX / 2) * 3, Span(u64::MAX));
    assert_eq!(Span::secs(u64::MAX), Span(u64::MAX));
    assert_eq!(Span::millis(u64::MAX), Span(u64::MAX));
    assert_eq!(Span::secs(2), Span::millis(2000));
    assert_eq!(Span::secs(2), Span(2_000_000_000));
}

#[test]
fn odd_milliseconds_are_tamed() {
    for odd in [-1.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(Span::from_ms(odd), Span::ZERO, "{odd}");
    }
    assert_eq!(Span::from_ms(1e300), Span(u64::MAX));
    assert_eq!(Span::from_ms(1.5), Span(1_500_000));
}
