//! How long an agent pauses between two turns, while its tools run.

use crate::dice::Dice;
use protocol::time::Span;

/// Quantiles of the time between an answer that called tools and the next request with their
/// results, in seconds: 20,318 gaps of 400 sessions of a coding agent. Half are over in 9 s, one in
/// twenty takes more than two minutes.
const TOOL_GAPS: [(f64, f64); 10] = [
    (0.0, 0.5),
    (0.05, 3.0),
    (0.1, 4.0),
    (0.25, 5.0),
    (0.5, 9.0),
    (0.75, 19.0),
    (0.9, 69.0),
    (0.95, 137.0),
    (0.99, 608.0),
    (1.0, 2926.0),
];

/// A pause drawn from the measured distribution (its quantiles, joined by straight lines), times
/// `scale`, at most `most`.
pub(crate) fn pause(dice: &mut Dice, scale: f64, most: Span) -> Span {
    let at = dice.unit();
    let seconds = TOOL_GAPS
        .windows(2)
        .find_map(|pair| {
            let [(low, from), (high, to)] = pair else { return None };
            (at < *high).then(|| from + (to - from) * (at - low) / (high - low))
        })
        .unwrap_or(0.0);
    Span::from_ms(seconds * 1e3 * scale).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_the_quantiles() {
        let mut dice = Dice::new(1, "pauses");
        let day = Span::secs(24 * 3600);
        let mut drawn: Vec<Span> = (0..20_000).map(|_| pause(&mut dice, 1.0, day)).collect();
        drawn.sort();
        let at = |share: f64| drawn[(share * 20_000.0) as usize].as_ms() / 1e3;
        assert!((8.0..10.0).contains(&at(0.5)), "{}", at(0.5));
        assert!((60.0..80.0).contains(&at(0.9)), "{}", at(0.9));
        let short = pause(&mut dice, 1.0, Span::millis(1));
        assert_eq!(short, Span::millis(1));
    }
}
