use super::*;
use proptest::prelude::*;

fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
    let mut scanner = StopScanner::new(stops.iter().map(|s| (*s).to_owned()).collect());
    let mut shown = String::new();
    for piece in pieces {
        let scanned = scanner.push(piece);
        shown.push_str(&scanned.text);
        if scanned.stop.is_some() {
            return (shown, scanned.stop);
        }
    }
    shown.push_str(&scanner.finish());
    (shown, None)
}

#[test]
fn a_stop_string_over_borders_is_never_shown() {
    let (shown, stop) = run(&["beta gamma"], &["alpha be", "ta", " gam", "ma delta"]);
    assert_eq!((shown.as_str(), stop.as_deref()), ("alpha ", Some("beta gamma")));
}

#[test]
fn a_beginning_that_comes_to_nothing_is_shown() {
    assert_eq!(run(&["beta gamma"], &["a beta", " delta"]), ("a beta delta".into(), None));
    assert_eq!(run(&["xyz"], &["end xy"]), ("end xy".into(), None));
}

#[test]
fn the_match_that_ends_first_wins() {
    assert_eq!(run(&["abcd", "bc"], &["abcd"]), ("a".into(), Some("bc".into())));
    assert_eq!(run(&["bc", "abc"], &["abc"]), (String::new(), Some("abc".into())));
}

proptest! {
    #[test]
    fn cuts_do_not_matter(
        text in "[abé]{0,24}",
        stops in prop::collection::vec("[abé]{1,4}", 0..4),
        cuts in prop::collection::vec(0usize..24, 0..6),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let mut cuts: Vec<usize> =
            cuts.into_iter().filter(|&c| c <= text.len() && text.is_char_boundary(c)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        let whole = run(&stops, &[&text]);
        prop_assert_eq!(&run(&stops, &pieces), &whole);
        prop_assert_eq!(&run(&stops, &chars), &whole);
        for stop in &stops {
            prop_assert!(!whole.0.contains(stop));
        }
    }
}
