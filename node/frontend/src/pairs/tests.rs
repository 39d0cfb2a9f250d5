use super::*;

/// What a later turn is read on from must not know of calls that came after it.
#[test]
fn a_result_that_answers_nothing_answers_no_later_call() {
    let mut pairs = Pairs::default();
    assert_eq!(pairs.result(None, 1, "").unwrap(), None);
    pairs.turn();
    pairs.call(None, "f", "").unwrap();
    pairs.call(None, "g", "").unwrap();
    let mut again = pairs.first(pairs.mark());
    for pairs in [&mut pairs, &mut again] {
        assert_eq!(pairs.result(None, 3, "").unwrap(), Some("f"));
        assert_eq!(pairs.result(None, 4, "").unwrap(), Some("g"));
        assert_eq!(pairs.result(None, 5, "").unwrap(), None);
    }
}
