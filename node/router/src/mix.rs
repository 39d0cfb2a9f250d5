//! Seeded mixing: the crate's only source of "random" choices.

/// One step of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// 2014): a bijection of 64-bit words with good avalanche.
pub(crate) fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A choice among `n` from `seed`, nearly even; 0 when `n` is 0.
pub(crate) fn pick(seed: u64, n: usize) -> usize {
    ((u128::from(mix(seed)) * n as u128) >> 64) as usize
}

/// Folds bytes into 64 bits; equal bytes give equal words. Not for adversaries.
pub(crate) fn fold(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(mix(seed ^ bytes.len() as u64), |state, chunk| {
        let word = chunk.iter().fold(0u64, |word, byte| (word << 8) | u64::from(*byte));
        mix(state ^ word)
    })
}
