use super::*;
use proptest::prelude::*;

fn values(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn run<const LANES: usize>(linear: &Linear, x: &[f32]) -> Vec<u32> {
    let rows = x.len() / linear.inputs;
    let mut out = vec![0.0; rows * linear.outputs];
    let panels = 0..linear.outputs.div_ceil(PANEL);
    Multiply { linear, x, panels, out: &mut out }.run::<LANES>();
    out.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equals_the_plain_sum_in_order_for_all_tiles_and_threads(
        inputs in 1usize..70, outputs in 1usize..100, rows in 1usize..20, threads in 1usize..4,
        seed: u32,
    ) {
        let weights = values(seed, inputs * outputs);
        let x = values(!seed, inputs * rows);
        let cut = outputs / 2 * inputs;
        let linear = Linear::pack(inputs, &[&weights[..cut], &weights[cut..]]);
        let mut expected = Vec::new();
        for row in x.chunks(inputs) {
            for weights in weights.chunks(inputs) {
                let product = |sum, (a, b): (&f32, &f32)| sum + a * b;
                expected.push(row.iter().zip(weights).fold(0f32, product).to_bits());
            }
        }
        prop_assert_eq!(&run::<4>(&linear, &x), &expected);
        prop_assert_eq!(&run::<8>(&linear, &x), &expected);
        prop_assert_eq!(&run::<16>(&linear, &x), &expected);
        let mut out = Vec::new();
        linear.apply(&x, &mut out, Threads::new(threads));
        let bits: Vec<u32> = out.iter().map(|value| value.to_bits()).collect();
        prop_assert_eq!(&bits, &expected);
        let mut row = vec![0.0; inputs];
        linear.row(outputs - 1, &mut row);
        prop_assert_eq!(&row[..], &weights[(outputs - 1) * inputs..]);
    }
}

#[test]
fn several_threads_give_the_bits_of_one() {
    let (inputs, outputs, rows) = (300, 400, 70);
    let weights = values(1, inputs * outputs);
    let x = values(2, inputs * rows);
    let linear = Linear::pack(inputs, &[&weights]);
    assert!(Threads::new(3).count(outputs / PANEL, inputs * outputs * rows) == 3);
    let (mut one, mut three) = (Vec::new(), Vec::new());
    linear.apply(&x, &mut one, Threads::new(1));
    linear.apply(&x, &mut three, Threads::new(3));
    assert!(one == three);
}
