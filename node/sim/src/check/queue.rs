//! The starvation bound: within a strict tier no request is admitted before one that arrived earlier
//! by more than the bound.

use crate::host::admission;
use crate::scenario::Scenario;
use protocol::id::RequestId;
use protocol::time::{Span, Time};
use router::admission::{In, Out};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    strict: u32,
    since: Time,
}

/// Who waits where, and since when.
pub(super) struct Order {
    bound: Span,
    waiting: BTreeMap<(usize, RequestId), Waiting>,
}

impl Order {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let config = admission(scenario);
        Self { bound: config.starvation + config.step, waiting: BTreeMap::new() }
    }

    pub(super) fn input(&mut self, host: usize, now: Time, input: &In) {
        match input {
            In::Arrive(arrival) => {
                let waiting = Waiting { strict: arrival.strict, since: now };
                self.waiting.insert((host, arrival.id), waiting);
            }
            In::Cancel(id) => {
                self.waiting.remove(&(host, *id));
            }
            In::Done(_) | In::Window(_) => {}
        }
    }

    pub(super) fn output(&mut self, host: usize, output: &Out) -> Result<(), String> {
        let id = match output {
            Out::Admit(id) | Out::Refuse(id, _) => id,
        };
        let found = self.waiting.remove(&(host, *id));
        let (Some(one), Out::Admit(_)) = (found, output) else { return Ok(()) };
        let of = self.waiting.range((host, RequestId(0))..=(host, RequestId(u128::MAX)));
        let oldest = of.filter(|(_, w)| w.strict == one.strict).map(|(_, w)| w.since).min();
        match oldest {
            Some(oldest) if one.since.since(oldest) > self.bound => Err(format!(
                "{id:?} is admitted before one that waits {} ms longer",
                one.since.since(oldest).as_ms()
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn host_gone(&mut self, host: usize) {
        self.waiting.retain(|(h, _), _| *h != host);
    }
}
