use super::*;

const WARM: Sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, seed: 11 };

/// Logits of the probabilities 0.5, 0.25, 0.15, 0.1, not in order of id.
fn logits() -> Vec<f32> {
    [0.15f32, 0.5, 0.1, 0.25].iter().map(|p| p.ln() + 3.0).collect()
}

fn shares(sampling: &Sampling) -> [f64; 4] {
    let mut counts = [0u32; 4];
    let draws = 20_000;
    for position in 0..draws {
        counts[choose(&logits(), sampling, position).0 as usize] += 1;
    }
    counts.map(|count| f64::from(count) / draws as f64)
}

fn check(sampling: Sampling, expected: [f64; 4]) {
    let shares = shares(&sampling);
    for (share, expected) in shares.iter().zip(expected) {
        // More than four standard deviations of 20,000 draws.
        assert!((share - expected).abs() < 0.016, "{shares:?} {sampling:?}");
        assert!(expected > 0.0 || *share == 0.0, "{shares:?} {sampling:?}");
    }
}

#[test]
fn greedy_takes_the_largest_and_the_lowest_id_among_equals() {
    let pick = |logits: &[f32]| choose(logits, &Sampling::GREEDY, 5).0;
    assert_eq!(pick(&[0.0, 3.0, 3.0, 1.0]), 1);
    assert_eq!(pick(&[f32::NAN, -1.0, -2.0]), 1);
    assert_eq!(pick(&[f32::NEG_INFINITY, -9e30]), 1);
    assert_eq!(choose(&[0.0, 3.0, 3.0], &Sampling { top_k: 1, ..WARM }, 9).0, 1);
}

#[test]
fn draws_follow_the_distribution() {
    check(WARM, [0.15, 0.5, 0.1, 0.25]);
    check(Sampling { seed: 12, ..WARM }, [0.15, 0.5, 0.1, 0.25]);
}

#[test]
fn temperature_sharpens() {
    let sum = 0.15f64.powi(2) + 0.25 + 0.01 + 0.0625;
    let expected = [0.0225 / sum, 0.25 / sum, 0.01 / sum, 0.0625 / sum];
    check(Sampling { temperature: 0.5, ..WARM }, expected);
}

#[test]
fn top_k_then_top_p_then_min_p() {
    check(Sampling { top_k: 2, ..WARM }, [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
    // Of 0.5, 0.25, 0.15 and 0.1 the first two reach 0.7.
    check(Sampling { top_p: 0.7, ..WARM }, [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
    check(Sampling { top_p: 0.8, ..WARM }, [0.15 / 0.9, 0.5 / 0.9, 0.0, 0.25 / 0.9]);
    check(Sampling { min_p: 0.4, ..WARM }, [0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
    // After top_k = 2 the likeliest has 2/3, which alone reaches 0.6.
    check(Sampling { top_k: 2, top_p: 0.6, ..WARM }, [0.0, 1.0, 0.0, 0.0]);
    check(Sampling { top_p: 0.0, ..WARM }, [0.0, 1.0, 0.0, 0.0]);
    check(Sampling { min_p: 2.0, ..WARM }, [0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn equals_are_kept_by_lower_id() {
    let picks: Vec<u32> = (0..200)
        .map(|position| choose(&[1.0; 8], &Sampling { top_k: 3, ..WARM }, position).0)
        .collect();
    assert!(picks.iter().all(|id| *id < 3));
    assert!((0..3).all(|id| picks.contains(&id)));
}

#[test]
fn depends_on_seed_and_position_only() {
    let logits: Vec<f32> = (0..1_000).map(|i| (i as f32 * 0.37).sin()).collect();
    let stream = |seed: u64| -> Vec<u32> {
        (0..50).map(|position| choose(&logits, &Sampling { seed, ..WARM }, position).0).collect()
    };
    assert_eq!(stream(1), stream(1));
    assert_ne!(stream(1), stream(2));
    // Not the same draw at every position.
    assert!(stream(1).iter().any(|id| *id != stream(1)[0]));
    // Fixed for good: another node continues a stream of this one.
    assert_eq!(stream(1)[..3], GOLDEN);
}

const GOLDEN: [u32; 3] = [378, 103, 376];

#[test]
fn what_is_no_number_is_never_drawn() {
    let logits = [f32::NAN, 1.0, f32::NEG_INFINITY, 1.0];
    for position in 0..100 {
        assert!(matches!(choose(&logits, &WARM, position).0, 1 | 3));
    }
    assert_eq!(choose(&[], &WARM, 0), Token(0));
}

/// The mask of a form at its beginning, on the tiny model's vocabulary.
fn mask(schema: &str) -> Mask {
    use protocol::constraint::{Constraint, Form, Lead, Schema, TextForm};
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = model::Model::open(&path.join("../../tests/fixtures/tiny-qwen3")).unwrap();
    let schema = Schema { text: schema.into(), exact: true };
    let form = Form::Text(TextForm::JsonSchema(schema));
    let grammar = model.grammars().compile(&Constraint { lead: Lead::None, form }).unwrap();
    grammar.begin().mask().unwrap()
}

#[test]
fn only_what_is_allowed_is_chosen() {
    let mask = mask(r#"{"type": "boolean"}"#);
    let ends = [Token(2)];
    for seed in 0..200u64 {
        let logits: Vec<f32> = (0..1024u64).map(|i| ((i * 37 + seed) % 101) as f32 / 9.0).collect();
        for sampling in [Sampling::GREEDY, Sampling { seed, ..WARM }, Sampling { top_k: 3, ..WARM }]
        {
            let token = choose_within(&logits, &mask, &ends, &sampling, seed as usize).unwrap();
            assert!(mask.allows(token), "{token:?}");
        }
    }
    // No allowed logit is a number: one of the allowed all the same.
    let token = choose_within(&[f32::NAN; 1024], &mask, &ends, &Sampling::GREEDY, 0).unwrap();
    assert!(mask.allows(token));
    // Fewer logits than the vocabulary has tokens, none of them allowed.
    assert_eq!(choose_within(&[1.0; 3], &mask, &ends, &Sampling::GREEDY, 0), None);
}
