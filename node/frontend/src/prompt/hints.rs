//! Hints and claims of a prompt, and what became of what the client asked for.

use super::cache::Tokenised;
use super::{Who, render_messages, shown_tools};
use crate::ask::Ask;
use crate::cluster::ServedModel;
use crate::nvext::outcome::{Outcome, Verdict};
use protocol::block::{BlockClass, Claim};
use protocol::prompt::{Hints, RangeClaim};
use protocol::time::Span;
use std::cmp::Reverse;

/// Most pins that are followed; each costs a rendering.
const PINS_MAX: usize = 4;
/// Longest expected time of tools.
const TOOLS_MAX: Span = Span::secs(3600);

/// All that was told about a prompt.
pub(super) struct Told<'a> {
    pub(super) ask: &'a Ask,
    pub(super) who: &'a Who,
    pub(super) served: &'a ServedModel,
    pub(super) tokenised: &'a Tokenised,
    /// Most new tokens.
    pub(super) limit: u32,
}

impl Told<'_> {
    /// Hints, and what became of each that was given.
    pub(super) fn hints(&self) -> (Hints, Vec<Outcome>) {
        let nvext = &self.ask.nvext;
        let given = &nvext.hints;
        let mut outcomes = self.who.session.outcomes.clone();
        let mut say =
            |hint: &str, verdict| outcomes.push(Outcome::new(format!("nvext.{hint}"), verdict));
        let mut hints = Hints {
            parent: self.who.session.parent.clone(),
            session_final: nvext.session_final.unwrap_or(self.who.session.last),
            strict_priority: given.strict_priority.unwrap_or(0),
            speculative_prefill: given.speculative_prefill.unwrap_or(false),
            ..Hints::default()
        };
        if given.priority.is_some() {
            say("agent_hints.priority", Verdict::Accepted);
        }
        hints.priority = given.priority(self.who.priority);
        if given.latency_sensitivity.is_some() {
            let verdict = match given.priority {
                Some(_) => Verdict::Rejected("`priority` is given, and comes first".into()),
                None => Verdict::Clipped("deprecated: rounded to `priority`".into()),
            };
            say("agent_hints.latency_sensitivity", verdict);
        }
        if given.strict_priority.is_some() {
            say("agent_hints.strict_priority", Verdict::Accepted);
        }
        if let Some(osl) = given.osl {
            hints.osl = Some(osl.min(self.limit));
            let limit = self.limit;
            let clipped = || Verdict::Clipped(format!("at most {limit} new tokens are possible"));
            say("agent_hints.osl", if osl > limit { clipped() } else { Verdict::Accepted });
        }
        if given.speculative_prefill.is_some() {
            say("agent_hints.speculative_prefill", Verdict::Accepted);
        }
        if let Some(asked) = nvext.tool_latency_ms {
            hints.tool_latency = Some(Span::millis(asked).min(TOOLS_MAX));
            let why = "noted, but nothing is prefetched for the return of a tool yet";
            say("tool_latency_ms", Verdict::Rejected(why.into()));
        }
        if hints.session_final && self.who.session.id.is_none() {
            hints.session_final = false;
            let why = "the request names no session (header x-dynamo-session-id)";
            say("session_final", Verdict::Rejected(why.into()));
        } else if nvext.session_final.is_some() {
            say("session_final", Verdict::Accepted);
        }
        self.retention(&mut hints, &mut outcomes);
        self.head(&mut hints);
        self.pins(&mut hints, &mut outcomes);
        (hints, outcomes)
    }

    fn length(&self) -> u32 {
        u32::try_from(self.tokenised.tokens.len()).unwrap_or(u32::MAX)
    }

    fn claim(
        &self,
        (start, end): (u32, u32),
        class: BlockClass,
        priority: i32,
        ttl: Option<Span>,
    ) -> RangeClaim {
        let (session, tenant) = (self.who.session.id.clone(), self.who.tenant.clone());
        RangeClaim {
            start,
            end,
            claim: Claim { session, tenant, class, priority, ttl, max_age: None },
        }
    }

    /// Claims on ranges of tokens.
    fn retention(&self, hints: &mut Hints, outcomes: &mut Vec<Outcome>) {
        let length = self.length();
        for (i, range) in self.ask.nvext.retention.iter().enumerate() {
            let asked = range.end.unwrap_or(length);
            let end = asked.min(length);
            let verdict = if range.start >= end {
                Verdict::Rejected(format!("the range is empty in a prompt of {length} tokens"))
            } else if asked > end {
                Verdict::Clipped(format!("the prompt ends after {length} tokens"))
            } else {
                Verdict::Accepted
            };
            if range.start < end {
                let ttl = range.duration_ms.map(Span::millis);
                hints.claims.push(self.claim(
                    (range.start, end),
                    BlockClass::Context,
                    range.priority,
                    ttl,
                ));
            }
            outcomes.push(Outcome::new(format!("nvext.retention[{i}]"), verdict));
        }
    }

    /// What many sessions share: the system prompt and the tools.
    fn head(&self, hints: &mut Hints) {
        let system = self.ask.messages.first().is_some_and(|m| m["role"] == "system");
        let has_head = system || !shown_tools(self.ask).is_empty();
        if let (true, [(_, end), _, ..]) = (has_head, self.tokenised.borders.as_slice()) {
            let class = if system { BlockClass::System } else { BlockClass::Tools };
            hints.claims.push(self.claim((0, *end), class, hints.priority, None));
        }
    }

    /// Pins cover whole turns: each reaches to the last turn border at or before the end of the
    /// message it stands on. For each time to live the one that reaches furthest is followed;
    /// shorter ones within longer-lived ones say nothing.
    fn pins(&self, hints: &mut Hints, outcomes: &mut Vec<Outcome>) {
        let mut pins: Vec<(usize, Span, Outcome)> = Vec::new();
        for pin in &self.ask.pins {
            let outcome = Outcome::new("cache_control", pin.verdict.clone());
            pins.push((pin.messages, pin.ttl, outcome));
        }
        if let Some(control) = &self.ask.nvext.cache_control {
            let (ttl, verdict) = control.ttl();
            let outcome = Outcome::new("nvext.cache_control", verdict);
            pins.push((self.ask.messages.len(), ttl, outcome));
        }
        // Longest-lived first, then furthest.
        pins.sort_by_key(|(messages, ttl, _)| Reverse((*ttl, *messages)));
        let mut kept: Vec<usize> = Vec::new();
        for (messages, ttl, mut outcome) in pins {
            // A wider pin that lives as long says all of it.
            if messages > 0 && kept.iter().all(|reach| *reach < messages) {
                if kept.len() >= PINS_MAX {
                    let why = format!("at most {PINS_MAX} pins of one request are followed");
                    outcome.verdict = Verdict::Rejected(why);
                } else {
                    kept.push(messages);
                    let end = self.tokens_through(messages);
                    if end > 0 {
                        let claim =
                            self.claim((0, end), BlockClass::Context, hints.priority, Some(ttl));
                        hints.claims.push(claim);
                    } else {
                        let why = "no whole turn ends at or before it";
                        outcome.verdict = Verdict::Rejected(why.into());
                    }
                }
            }
            outcomes.push(outcome);
        }
    }

    /// Tokens of the first `messages` messages, as far as they are whole turns; 0 where the template
    /// refuses them without the others.
    fn tokens_through(&self, messages: usize) -> u32 {
        let Some(first) =
            self.ask.messages.get(..messages).filter(|f| f.len() < self.ask.messages.len())
        else {
            return self.length();
        };
        match render_messages(self.ask, self.served, first, false) {
            Ok(head) if self.tokenised.text.starts_with(&head) => {
                self.tokenised.tokens_within(head.len())
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
