use super::*;

fn history(seed: Option<u64>) -> Vec<bool> {
    let mut buggify = Buggify::new(seed);
    (0..2000)
        .flat_map(|_| {
            [
                buggify.refuses_prepare(),
                buggify.refuses_write(),
                buggify.strikes(Kind::EvictDram, 64),
            ]
        })
        .collect()
}

#[test]
fn without_a_seed_nothing_ever_strikes() {
    let mut buggify = Buggify::new(None);
    assert!((0..1000).all(|_| !buggify.refuses_prepare() && !buggify.empties_top_up()));
    assert_eq!(buggify.done(), 0);
    assert!(history(None).iter().all(|struck| !struck));
}

#[test]
fn equal_seeds_strike_alike_and_seeds_differ_in_kind() {
    assert_eq!(history(Some(5)), history(Some(5)));
    let kinds = |seed| {
        let on = Buggify::new(Some(seed)).on;
        (0..7).filter(|kind| on & (1 << kind) != 0).count()
    };
    let counts: Vec<usize> = (0..64).map(kinds).collect();
    assert!(counts.iter().any(|n| *n <= 2) && counts.iter().any(|n| *n >= 5), "{counts:?}");
    assert!((0..16).any(|seed| history(Some(seed)).iter().any(|struck| *struck)));
}
