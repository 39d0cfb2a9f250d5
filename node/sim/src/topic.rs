//! What a node's topic remembers: gossipsub carries no message twice, not even for another
//! publisher, while it remembers its content.

use protocol::time::{Span, Time};
use std::collections::{BTreeSet, VecDeque};

/// How long a message is remembered; gossipsub's default.
const REMEMBERED: Span = Span::secs(60);

/// Messages seen lately.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    names: BTreeSet<[u8; 32]>,
    order: VecDeque<(Time, [u8; 32])>,
}

impl Seen {
    /// Remembers a message; false when it was seen before.
    pub(crate) fn is_new(&mut self, now: Time, bytes: &[u8]) -> bool {
        while let Some((at, name)) = self.order.front().copied()
            && now.since(at) >= REMEMBERED
        {
            self.order.pop_front();
            self.names.remove(&name);
        }
        let name = *blake3::hash(bytes).as_bytes();
        let new = self.names.insert(name);
        if new {
            self.order.push_back((now, name));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_new_once_a_minute() {
        let mut seen = Seen::default();
        assert!(seen.is_new(Time(0), b"a"));
        assert!(seen.is_new(Time(1), b"b"));
        assert!(!seen.is_new(Time(0) + Span::secs(59), b"a"));
        assert!(seen.is_new(Time(0) + Span::secs(60), b"a"));
        assert!(!seen.is_new(Time(0) + Span::secs(60), b"b"));
    }
}
