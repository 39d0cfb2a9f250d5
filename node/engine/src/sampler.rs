//! The choice of a token from its logits.

#[cfg(test)]
mod tests;

use crate::math::vector::exp;
use model::Mask;
use protocol::hash::Token;
use protocol::prompt::Sampling;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// The token at `position` (its index in prompt plus answer): a pure function of the logits, the
/// sampling values and the position, so that another node continues a stream alike.
///
/// Temperature 0 takes the largest logit, the lowest id among equals. Otherwise, in this order: the
/// logits are divided by the temperature; `top_k` keeps the most likely; of these `top_p` keeps the
/// smallest set with at least this probability; of these `min_p` keeps those at least this share
/// as likely as the likeliest; one of the rest is drawn in proportion. Among equals lower ids are
/// kept first. Logits that are not numbers are never chosen.
pub(crate) fn choose(logits: &[f32], sampling: &Sampling, position: usize) -> Token {
    let best = argmax(logits);
    let draws = sampling.temperature > 0.0 && sampling.top_k != 1;
    let largest = logits.get(best).copied().unwrap_or(f32::NEG_INFINITY);
    if !draws || !largest.is_finite() {
        return Token(best as u32);
    }
    let weight = |logit: f32| exp_or_zero((logit - largest) / sampling.temperature);
    let mut kept: Vec<(usize, f64)> =
        logits.iter().map(|logit| weight(*logit)).enumerate().filter(|(_, w)| *w > 0.0).collect();
    keep_top_k(&mut kept, sampling.top_k as usize);
    keep_top_p(&mut kept, f64::from(sampling.top_p));
    // The likeliest token has weight 1.
    kept.retain(|(_, weight)| *weight >= f64::from(sampling.min_p).min(1.0));
    // Whatever the order of the filters left, the draw goes by id.
    kept.sort_unstable_by_key(|(id, _)| *id);
    let share = uniform(sampling.seed, position as u64);
    Token(draw(&kept, share).unwrap_or(best) as u32)
}

/// As [`choose`], among the tokens that `mask` allows, and among `ends` where the answer may end.
/// `None` when there are none.
pub(crate) fn choose_within(
    logits: &[f32],
    mask: &Mask,
    ends: &[Token],
    sampling: &Sampling,
    position: usize,
) -> Option<Token> {
    let mut allowed = vec![f32::NEG_INFINITY; logits.len()];
    let mut first = None;
    let mut allow = |token: Token| {
        let id = token.0 as usize;
        if let (Some(place), Some(logit)) = (allowed.get_mut(id), logits.get(id)) {
            *place = *logit;
            first = first.or(Some(token));
        }
    };
    mask.for_each(&mut allow);
    if mask.may_end() {
        ends.iter().copied().for_each(allow);
    }
    let first = first?;
    let chosen = choose(&allowed, sampling, position);
    let fine = mask.allows(chosen) || mask.may_end() && ends.contains(&chosen);
    // Only where no allowed logit is a finite number.
    Some(if fine { chosen } else { first })
}

fn argmax(logits: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, logit) in logits.iter().enumerate() {
        if *logit > best.1 {
            best = (id, *logit);
        }
    }
    best.0
}

/// Zero for what is beyond f32's range or not a number.
fn exp_or_zero(x: f32) -> f64 {
    if x > -87.0 { f64::from(exp(x)) } else { 0.0 }
}

/// More likely first, then lower ids.
fn by_weight(a: &(usize, f64), b: &(usize, f64)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

fn keep_top_k(kept: &mut Vec<(usize, f64)>, k: usize) {
    if k > 0 && k < kept.len() {
        kept.select_nth_unstable_by(k, by_weight);
        kept.truncate(k);
    }
}

fn keep_top_p(kept: &mut Vec<(usize, f64)>, p: f64) {
    let keeps_all = p >= 1.0 || p.is_nan();
    if keeps_all || kept.is_empty() {
        return;
    }
    kept.sort_unstable_by_key(|(id, _)| *id);
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    // Tokens this unlikely together weigh less than what may be dropped, so sorting can leave
    // them out.
    let negligible = total * (1.0 - p.max(0.0)) / kept.len() as f64;
    kept.retain(|(_, weight)| *weight >= negligible);
    kept.sort_unstable_by(by_weight);
    let mut mass = 0.0;
    let needed = kept.iter().take_while(|(_, weight)| {
        let more = mass < total * p;
        mass += weight;
        more
    });
    let needed = needed.count().max(1);
    kept.truncate(needed);
}

/// The token whose stretch of the line of weights holds `share` (0 to 1) of its length.
fn draw(kept: &[(usize, f64)], share: f64) -> Option<usize> {
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    let mut left = total * share;
    for (id, weight) in kept {
        if left < *weight {
            return Some(*id);
        }
        left -= weight;
    }
    kept.last().map(|(id, _)| *id)
}

/// Uniform in [0, 1): ChaCha8 keyed by the seed, one stream per position.
fn uniform(seed: u64, position: u64) -> f64 {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(position);
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
