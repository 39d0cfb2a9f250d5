use super::*;
use proptest::prelude::*;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1e-9)
}

#[test]
fn the_formula_by_hand() {
    let timing = Timing::default();
    for (new, pairs, ms) in [
        (0, 0, 0.0),
        (0, 1_000_000, 0.0),
        (1, 0, 16.516_603_860_999),
        (1000, 0, 32.105_858_9),
        (8192, 0, 169.136_991_9),
        (1000, 32_000_000, 59.049_788_5),
    ] {
        let got = timing.prefill_ms(new, pairs);
        assert!((got - ms).abs() < 1e-4, "{new} {pairs}: {got}, not {ms}");
    }
    for (utilisation, ms) in [(0.0, 5.74), (0.5, 26.31), (1.0, 34.01), (7.0, 34.01)] {
        assert!(close(timing.decode_ms(utilisation), ms), "{utilisation}");
    }
    let fast = Timing { decode_base_ms: 0.0, ..timing };
    assert!(close(fast.decode_ms(0.0), 1.0));
}

#[test]
fn ratios_divide() {
    let timing = Timing { speedup_ratio: 10.0, decode_speedup_ratio: 2.0, ..Timing::default() };
    let plain = Timing::default();
    let step = timing.step(100, 0, Some(0.0)).as_ms();
    assert!(close(step, (plain.prefill_ms(100, 0) + 5.74 / 2.0) / 10.0));
    assert!(close(timing.prefill_rate(8192), 10.0 * plain.prefill_rate(8192)));
    assert!(close(timing.attention_ns(), plain.attention_ns() / 10.0));
    let endless = Timing { speedup_ratio: 1e30, ..plain };
    assert_eq!(endless.step(1, 0, None), Span(1));
}

#[test]
fn useless_ones_are_found() {
    let good = Timing::default();
    assert_eq!(good.check(), Ok(()));
    let bad = [
        Timing { attention_ms: -1.0, ..good },
        Timing { prefill_base_ms: f64::NAN, ..good },
        Timing { decode_linear_ms: f64::INFINITY, ..good },
        Timing { speedup_ratio: 0.0, ..good },
        Timing { decode_speedup_ratio: -2.0, ..good },
        Timing { jitter: 1.0, ..good },
    ];
    let fields: Vec<_> = bad.iter().map(|timing| timing.check().unwrap_err().field).collect();
    let expected = [
        "attention_ms",
        "prefill_base_ms",
        "decode_linear_ms",
        "speedup_ratio",
        "decode_speedup_ratio",
        "jitter",
    ];
    assert_eq!(fields, expected);
}

#[test]
fn it_is_a_toml_table() {
    let timing: Timing = toml::from_str("prefill_base_ms = 3.5\nspeedup_ratio = 20.0").unwrap();
    let expected = Timing { prefill_base_ms: 3.5, speedup_ratio: 20.0, ..Timing::default() };
    assert_eq!(timing, expected);
    assert_eq!(toml::from_str::<Timing>(&toml::to_string(&timing).unwrap()).unwrap(), timing);
    assert!(toml::from_str::<Timing>("prefil_base_ms = 3.5").is_err());
}

#[test]
fn nothing_cannot_be_fitted() {
    assert_eq!(Timing::fit(&[]), Err(FitError::Empty));
    assert_eq!(Timing::fit(&[Sample { new: 0, context: 5, ms: 1.0 }]), Err(FitError::Empty));
    assert_eq!(Timing::fit(&[Sample { new: 1, context: 5, ms: -1.0 }]), Err(FitError::NotATime));
}

#[test]
fn what_samples_do_not_tell_is_zero() {
    let truth = Timing::default();
    let sample = |new: u32, context: u32| Sample {
        new,
        context,
        ms: truth.prefill_ms(new.into(), u64::from(new) * u64::from(context)),
    };
    let no_context: Vec<_> = [16, 64, 512, 2048, 8192].map(|new| sample(new, 0)).into();
    let fitted = Timing::fit(&no_context).unwrap();
    assert_eq!(fitted.attention_ms, 0.0);
    assert!((fitted.prefill_linear_ms / truth.prefill_linear_ms - 1.0).abs() < 1e-3);
    // One length only: all of it is base, or base and attention.
    let one_length: Vec<_> = [0, 1000, 4000].map(|context| sample(256, context)).into();
    let fitted = Timing::fit(&one_length).unwrap();
    assert!((fitted.prefill_ms(256, 256 * 2000) / sample(256, 2000).ms - 1.0).abs() < 1e-3);
}

proptest! {
    #[test]
    fn a_prompt_costs_the_same_quadratic_part_in_any_chunks(
        cuts in proptest::collection::vec(1u64..3000, 1..8),
    ) {
        let timing = Timing { prefill_linear_ms: 0.0, prefill_base_ms: 0.0, ..Timing::default() };
        let total: u64 = cuts.iter().sum();
        let mut before = 0;
        let mut chunks = 0.0;
        for new in cuts {
            chunks += timing.prefill_ms(new, new * before);
            before += new;
        }
        prop_assert!(close(chunks, timing.prefill_ms(total, 0)));
    }

    #[test]
    fn a_fit_finds_the_coefficients_behind_noisy_samples(
        base in 0.0..50.0f64,
        linear in 0.001..0.1f64,
        quadratic in 1e-7..1e-5f64,
        attention in 1e-7..1e-5f64,
        noise in proptest::collection::vec(-0.01..0.01f64, 48),
    ) {
        let truth = Timing {
            prefill_base_ms: base,
            prefill_linear_ms: linear,
            prefill_quadratic_ms: quadratic,
            attention_ms: attention,
            ..Timing::default()
        };
        let ms = |new: u32, context: u32| {
            truth.prefill_ms(new.into(), u64::from(new) * u64::from(context))
        };
        let mut samples = Vec::new();
        for new in [16, 64, 128, 512, 1024, 2048, 4096, 8192] {
            for context in [0, 256, 1024, 4096, 16_384, 65_536] {
                let noise = noise[samples.len()];
                samples.push(Sample { new, context, ms: ms(new, context) * (1.0 + noise) });
            }
        }
        let fitted = Timing::fit(&samples).unwrap();
        prop_assert_eq!(fitted.check(), Ok(()));
        let got = fitted.prefill_ms(3000, 3000 * 10_000);
        prop_assert!((got / ms(3000, 10_000) - 1.0).abs() < 0.03, "{:?} for {:?}", fitted, truth);
    }
}
