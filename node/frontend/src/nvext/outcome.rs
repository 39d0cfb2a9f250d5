//! What became of the hints of a request.

use serde_json::{Value, json};

/// Whether a hint is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it is.
    Accepted,
    /// In part, because of this.
    Clipped(String),
    /// Not at all, because of this.
    Rejected(String),
}

/// One hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Path of the field, or name of the header.
    pub(crate) hint: String,
    pub(crate) verdict: Verdict,
}

impl Outcome {
    pub(crate) fn new(hint: impl Into<String>, verdict: Verdict) -> Self {
        Self { hint: hint.into(), verdict }
    }

    /// Whether whoever wrote the hint into `nvext` should know without asking.
    pub(crate) fn is_news(&self) -> bool {
        self.hint.starts_with("nvext.") && self.verdict != Verdict::Accepted
    }

    pub(crate) fn to_json(&self) -> Value {
        let (word, reason) = match &self.verdict {
            Verdict::Accepted => ("accepted", None),
            Verdict::Clipped(why) => ("clipped", Some(why)),
            Verdict::Rejected(why) => ("rejected", Some(why)),
        };
        match reason {
            None => json!({ "hint": self.hint, "outcome": word }),
            Some(reason) => json!({ "hint": self.hint, "outcome": word, "reason": reason }),
        }
    }
}
