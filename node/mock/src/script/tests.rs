use super::*;

#[test]
fn chunks_are_played_in_order_and_empty_ones_left_out() {
    let chunks = vec![vec![Token(1), Token(2)], vec![], vec![Token(3)]];
    let script = Script::new(chunks, Span::millis(5));
    let tokens: Vec<_> = (0..4).map(|index| script.token(index)).collect();
    assert_eq!(tokens, [Some(Token(1)), Some(Token(2)), Some(Token(3)), None]);
    let ends: Vec<_> = (0..4).map(|index| script.ends_before(index)).collect();
    assert_eq!(ends, [false, false, true, true]);
    assert_eq!((script.len(), script.is_empty(), script.pace()), (3, false, Span::millis(5)));
    assert!(Script::new(vec![], Span::ZERO).is_empty());
}
