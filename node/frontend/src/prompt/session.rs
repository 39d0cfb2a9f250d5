//! The agent session of a request, by the headers that harnesses send.

use crate::nvext::outcome::{Outcome, Verdict};
use axum::http::HeaderMap;
use protocol::id::SessionId;

/// What the headers say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Session {
    /// The session; sub-agents are sessions of their own.
    pub(crate) id: Option<SessionId>,
    /// The session that started it.
    pub(crate) parent: Option<SessionId>,
    /// Nothing comes after this request.
    pub(crate) last: bool,
    /// What became of the headers.
    pub(crate) outcomes: Vec<Outcome>,
}

/// Headers that name a session, most telling first.
const NAMES: [&str; 5] =
    ["x-dynamo-session-id", "x-claude-code-session-id", "thread-id", "session-id", "x-session-id"];
/// Headers that name the session that started it.
const PARENTS: [&str; 3] =
    ["x-dynamo-parent-session-id", "x-codex-parent-thread-id", "x-parent-session-id"];
const AGENT: &str = "x-claude-code-agent-id";
const PARENT_AGENT: &str = "x-claude-code-parent-agent-id";
const FINAL: &str = "x-dynamo-session-final";

impl Session {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let first =
            |names: &[&'static str]| names.iter().find_map(|name| Some((*name, text(name)?)));
        let odd = |name: &&&str| headers.get(**name).is_some_and(|value| value.to_str().is_err());
        let why = "not ASCII text";
        let told = |name: &'static &str| Outcome::new(*name, Verdict::Rejected(why.into()));
        let mut outcomes: Vec<Outcome> =
            NAMES.iter().chain(&PARENTS).filter(odd).map(told).collect();
        let mut named = |header: &str, name: String| {
            let id = SessionId::new(&name);
            let verdict = match id {
                Some(_) => Verdict::Accepted,
                None => Verdict::Rejected("no session is named so: 1 to 256 bytes".into()),
            };
            outcomes.push(Outcome::new(header, verdict));
            id
        };
        let session = first(&NAMES);
        let id = session.and_then(|(header, name)| match text(AGENT) {
            Some(agent) => named(header, format!("{name}/{agent}")),
            None => named(header, name.to_owned()),
        });
        let parent = match (first(&PARENTS), session, text(AGENT)) {
            (Some((header, name)), ..) => named(header, name.to_owned()),
            // A sub-agent was started by its session, or by another agent of that.
            (None, Some((_, name)), Some(_)) => match text(PARENT_AGENT) {
                Some(agent) => named(PARENT_AGENT, format!("{name}/{agent}")),
                None => SessionId::new(name),
            },
            _ => None,
        };
        let last = text(FINAL).map(|word| match word.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => (true, Verdict::Accepted),
            "false" | "0" | "" => (false, Verdict::Accepted),
            _ => (false, Verdict::Rejected("neither true nor false".into())),
        });
        let last = last.is_some_and(|(last, verdict)| {
            outcomes.push(Outcome::new(FINAL, verdict));
            last
        });
        Self { id, parent, last, outcomes }
    }
}

#[cfg(test)]
mod tests;
