use super::*;
use crate::math::simd::widest;

#[test]
fn exp_is_close_to_the_truth_and_never_leaves_f32() {
    for step in -8_700..=8_800 {
        let x = step as f32 / 100.0;
        let truth = f64::from(x).exp();
        let error = (f64::from(exp(x)) - truth).abs() / truth;
        assert!(error < 3e-7, "exp({x}) is off by {error:e}");
    }
    assert_eq!(exp(0.0), 1.0);
    assert!(exp(f32::NEG_INFINITY) < 2e-38);
    assert!(exp(1e9).is_finite());
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn sums_and_maxima_take_every_element() {
    let values: Vec<f32> = (0..48).map(|i| i as f32).collect();
    assert_eq!(sum(&values), (0..48).sum::<i32>() as f32);
    assert_eq!(max(&values[..37]), 36.0);
    assert_eq!(max(&[]), f32::NEG_INFINITY);
    assert_eq!(max(&[-3.0, -2.0]), -2.0);
}

#[test]
fn a_normed_row_has_mean_square_one() {
    let mut rows: Vec<f32> = (0..2 * 40).map(|i| (i as f32 * 0.7).sin() * 5.0).collect();
    let weight = [2.0f32; 40];
    widest(RmsNorm { rows: &mut rows, weight: &weight, eps: 0.0 });
    for row in rows.chunks(40) {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / 40.0;
        assert!((mean - 4.0).abs() < 1e-4, "{mean}");
    }
}

#[test]
fn gated_silu_pairs_gate_and_up_of_each_row() {
    let gate_up = [1.0, -2.0, 10.0, 100.0, 0.0, 3.0, 5.0, 7.0];
    let mut out = [0.0; 4];
    widest(GatedSilu { gate_up: &gate_up, width: 2, out: &mut out });
    let silu = |x: f32| x / (1.0 + (-x).exp());
    let expected = [silu(1.0) * 10.0, silu(-2.0) * 100.0, 0.0, silu(3.0) * 7.0];
    for (out, expected) in out.iter().zip(expected) {
        assert!((out - expected).abs() < 1e-4, "{out} {expected}");
    }
}

#[test]
fn rotation_keeps_lengths_and_pairs_the_halves() {
    let mut heads = [1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 0.0, 0.0];
    rotate(&mut heads, &[0.0, 1.0], &[1.0, 0.0]);
    // The first pair turns by a right angle, the second stays.
    assert_eq!(heads, [-3.0, 2.0, 1.0, 4.0, 0.0, 1.0, 0.0, 0.0]);
}
