//! Names of the placement policies.

use std::fmt;
use std::str::FromStr;

/// How a target is chosen among the candidates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Policy {
    /// Lowest cost in milliseconds, with what is cached where, and peer fetch.
    #[default]
    Kv,
    /// One after the other; no peer fetch. The baseline.
    RoundRobin,
    /// Any; no peer fetch.
    Random,
    /// The less loaded of two drawn ones; no peer fetch.
    PowerOfTwo,
    /// The least loaded; no peer fetch.
    LeastLoaded,
    /// By rendezvous hash of the session (without one: of the prompt's first granule), so that a
    /// session stays where it is while members do; with peer fetch.
    Session,
}

impl Policy {
    /// All policies, in the order of the documentation.
    pub const ALL: [Self; 6] = [
        Self::Kv,
        Self::RoundRobin,
        Self::Random,
        Self::PowerOfTwo,
        Self::LeastLoaded,
        Self::Session,
    ];

    /// The name, as configuration and command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::PowerOfTwo => "power-of-two",
            Self::LeastLoaded => "least-loaded",
            Self::Session => "session",
        }
    }

    /// Whether blocks are fetched from peers under this policy.
    pub fn fetches(self) -> bool {
        matches!(self, Self::Kv | Self::Session)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown policy {0:?}; the policies are kv, round-robin, random, power-of-two, least-loaded and session"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_listed_in_the_error() {
        let error = "kvv".parse::<Policy>().unwrap_err().to_string();
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert!(error.contains(policy.name()), "{error}");
        }
    }
}
