use super::*;

#[test]
fn streams_of_two_concerns_are_unrelated_and_repeat() {
    let draw = |seed, concern| {
        let mut dice = Dice::new(seed, concern);
        [dice.any(), dice.any(), dice.any()]
    };
    assert_eq!(draw(1, "a"), draw(1, "a"));
    assert_ne!(draw(1, "a"), draw(1, "b"));
    assert_ne!(draw(1, "a"), draw(2, "a"));
}

#[test]
fn bounds_hold() {
    let mut dice = Dice::new(1, "bounds");
    for _ in 0..10_000 {
        assert!(dice.below(7) < 7);
        assert!((3..=5).contains(&dice.between(3, 5)));
        assert!((0.0..1.0).contains(&dice.unit()));
        assert!(!dice.share(0.0));
        assert!(dice.share(1.0));
    }
    assert_eq!((dice.below(0), dice.index(0), dice.pick::<u8>(&[])), (0, 0, None));
}
