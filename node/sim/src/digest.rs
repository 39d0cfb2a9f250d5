//! The digest of a run: equal seeds must give equal digests.

/// Two lanes of folded multiplication over everything that happened, in order. Finds accidents, not
/// adversaries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    lanes: [u64; 2],
}

const K: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

impl Digest {
    pub(crate) fn new(seed: u64) -> Self {
        Self { lanes: [seed ^ K[0], seed.rotate_left(32) ^ K[1]] }
    }

    /// Takes in a number.
    pub(crate) fn word(&mut self, word: u64) {
        let [a, b] = self.lanes;
        self.lanes = [fold(a ^ word, K[0] | 1), fold(b.rotate_left(17) ^ word, K[1] | 1) ^ a];
    }

    /// Takes in bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for part in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// As 32 hexadecimal digits.
    pub(crate) fn text(&self) -> String {
        format!("{:016x}{:016x}", self.lanes[0], self.lanes[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_show() {
        let of = |parts: &[&[u8]]| {
            let mut digest = Digest::new(1);
            parts.iter().for_each(|part| digest.bytes(part));
            digest.text()
        };
        let all = [of(&[b"ab", b"c"]), of(&[b"c", b"ab"]), of(&[b"abc"]), of(&[b"abc\0"]), of(&[])];
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(of(&[b"abc"]), of(&[b"abc"]));
    }
}
