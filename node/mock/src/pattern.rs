//! What a mock block holds, as one number.

#[cfg(test)]
mod tests;

use protocol::hash::Token;

/// The content of a mock block: all its bytes follow from it, and every byte is checked when it is
/// recognised. Equal tokens after equal blocks have equal patterns, on every node.
///
/// Made by folded multiplication (as in wyhash): strong enough against accidents, worthless against
/// an adversary. Real digests stay BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pattern(pub u128);

const K: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// High and low half of the product, folded.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// A word of the bytes behind the pattern's own 16.
fn word(pattern: u128, index: u64) -> u64 {
    let (low, high) = (pattern as u64, (pattern >> 64) as u64);
    let step = index.wrapping_add(1).wrapping_mul(K[2]);
    fold(low ^ step ^ K[0], high.wrapping_add(step) ^ K[1])
}

impl Pattern {
    /// Stands for bytes that are no pattern.
    pub const TORN: Self = Self(0x746f_726e_746f_726e_746f_726e_746f_726e);

    /// The pattern of `tokens` after `parent`; without one they begin a sequence.
    pub fn of(parent: Option<Self>, tokens: &[Token]) -> Self {
        let (mut a, mut b) = match parent {
            Some(Self(parent)) => (parent as u64 ^ K[0], (parent >> 64) as u64 ^ K[1]),
            None => (K[3], K[2]),
        };
        let mut pairs = tokens.chunks_exact(2);
        for pair in &mut pairs {
            if let [first, second] = pair {
                let both = u64::from(first.0) | u64::from(second.0) << 32;
                (a, b) = (fold(a ^ both, K[1] ^ b), fold(b ^ both, K[2] ^ a).rotate_left(23));
            }
        }
        if let [last] = pairs.remainder() {
            let last = u64::from(last.0) | 1 << 63;
            (a, b) = (fold(a ^ last, K[3] ^ b), fold(b ^ last, K[0] ^ a));
        }
        let length = tokens.len() as u64;
        let (x, y) = (fold(a ^ K[2], b ^ length ^ K[3]), fold(b ^ K[0], a ^ length ^ K[1]));
        Self(u128::from(x) << 64 | u128::from(y))
    }

    /// Both, in this order: what follows from this depends on each.
    pub(crate) fn and(self, other: Self) -> Self {
        let half = |part: u128| [Token(part as u32), Token((part >> 32) as u32)];
        let ([a, b], [c, d]) = (half(other.0), half(other.0 >> 64));
        Self::of(Some(self), &[a, b, c, d])
    }

    /// A number drawn from it.
    pub(crate) fn draw(self, salt: u64) -> u64 {
        word(self.0, salt)
    }

    /// Writes the block's bytes: the pattern itself, then words that follow from it.
    pub fn fill(self, bytes: &mut [u8]) {
        let (head, body) = bytes.split_at_mut(bytes.len().min(16));
        head.iter_mut().zip(self.0.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        for (index, part) in body.chunks_mut(8).enumerate() {
            let word = word(self.0, index as u64).to_le_bytes();
            part.iter_mut().zip(word).for_each(|(byte, value)| *byte = value);
        }
    }

    /// The pattern that wrote these bytes; `None` when any byte differs, or when there are fewer
    /// than [`Self::BYTES_MIN`].
    pub fn recognise(bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk::<16>()?;
        if bytes.len() < Self::BYTES_MIN {
            return None;
        }
        let pattern = u128::from_le_bytes(*head);
        let whole = body
            .chunks(8)
            .enumerate()
            .all(|(index, part)| word(pattern, index as u64).to_le_bytes().starts_with(part));
        whole.then_some(Self(pattern))
    }

    /// Fewest bytes of a block: shorter ones would be recognised by accident.
    pub const BYTES_MIN: usize = 24;
}
