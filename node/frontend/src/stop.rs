//! Stop strings over token borders: nothing of a stop string is ever shown.

/// Looks for stop strings in a growing text.
pub(crate) struct StopScanner {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
}

/// What may be shown after one push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scanned {
    pub(crate) text: String,
    /// The stop string that was found; no more text follows.
    pub(crate) stop: Option<String>,
}

impl StopScanner {
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes new text. The match that ends first wins (the longest among those), so that the
    /// result does not depend on how the text is cut.
    pub(crate) fn push(&mut self, text: &str) -> Scanned {
        if self.stops.is_empty() {
            return Scanned { text: text.to_owned(), stop: None };
        }
        self.held.push_str(text);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at, stop)))
            .min();
        if let Some((_, at, stop)) = found {
            let stop = stop.clone();
            self.held.truncate(at);
            return Scanned { text: std::mem::take(&mut self.held), stop: Some(stop) };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        Scanned { text: std::mem::replace(&mut self.held, rest), stop: None }
    }

    /// The end: what was held back is text after all.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest proper prefix of `tag` that `text` ends with.
pub(crate) fn overlap(text: &str, tag: &str) -> usize {
    let longest = text.len().min(tag.len().saturating_sub(1));
    (1..=longest).rev().find(|&n| tag.is_char_boundary(n) && text.ends_with(&tag[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests;
