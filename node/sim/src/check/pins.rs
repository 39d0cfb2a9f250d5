//! A block with an unexpired pin within the budget does not leave a node: while it is pinned, it
//! stays in at least one of the node's tiers.

use crate::scenario::Scenario;
use protocol::event::{BlockEvent, Holder};
use protocol::hash::PrefixHash;
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Pins promised to a host's requests.
#[derive(Debug, Default)]
struct HostPins {
    until: BTreeMap<PrefixHash, Time>,
    /// Where each block is.
    held: BTreeMap<PrefixHash, BTreeSet<Holder>>,
    /// More was pinned at some time than the budget allows: nothing is promised from then on.
    over: bool,
}

/// See the module's text.
pub(super) struct Pins {
    /// Blocks that may be pinned in the smallest tier: half of its slots.
    budget: usize,
    hosts: BTreeMap<usize, HostPins>,
}

impl Pins {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let c = &scenario.cluster;
        // Mischief evicts early on purpose, pinned blocks too.
        let budget = c.engine_slots.min(c.dram_slots.max(1)) / 2;
        let budget = if c.buggify { 0 } else { budget };
        Self { budget: budget as usize, hosts: BTreeMap::new() }
    }

    /// A granted request pins blocks.
    pub(super) fn pinned(&mut self, host: usize, now: Time, names: &[PrefixHash], ttl: Span) {
        let budget = self.budget;
        let pins = self.hosts.entry(host).or_default();
        pins.until.retain(|_, until| *until > now);
        for name in names {
            let until = pins.until.entry(*name).or_default();
            *until = (*until).max(now + ttl);
        }
        pins.over |= pins.until.len() > budget;
    }

    /// A block came or went.
    pub(super) fn event(
        &mut self,
        host: usize,
        now: Time,
        event: &BlockEvent,
    ) -> Result<(), String> {
        let pins = self.hosts.entry(host).or_default();
        match event {
            BlockEvent::Stored { prefix, holder, .. } => {
                pins.held.entry(*prefix).or_default().insert(*holder);
            }
            BlockEvent::Removed { prefix, holder, tokens, .. } => {
                let Some(held) = pins.held.get_mut(prefix) else { return Ok(()) };
                held.remove(holder);
                if !held.is_empty() {
                    return Ok(());
                }
                pins.held.remove(prefix);
                let pinned = pins.until.get(prefix).is_some_and(|until| *until > now);
                if pinned && !pins.over {
                    return Err(format!(
                        "the pinned block {prefix:?} ({tokens} tokens) left the node"
                    ));
                }
            }
            BlockEvent::Cleared { holder } => {
                // What an engine's death or a failing disk takes is no eviction.
                for held in pins.held.values_mut() {
                    held.remove(holder);
                }
                pins.held.retain(|_, held| !held.is_empty());
            }
        }
        Ok(())
    }

    /// A corrupt copy was found: the block may go.
    pub(super) fn corrupt(&mut self, host: usize) {
        self.hosts.entry(host).or_default().over = true;
    }

    /// A pinned block of the host, to plant a bug with.
    pub(super) fn any(&self, host: usize, now: Time) -> Option<PrefixHash> {
        let pins = self.hosts.get(&host).filter(|pins| !pins.over)?;
        let live = |name: &&PrefixHash| pins.until.get(*name).is_some_and(|until| *until > now);
        pins.held.keys().find(live).copied()
    }

    /// Where a block is.
    pub(super) fn holders(&self, host: usize, name: &PrefixHash) -> Vec<Holder> {
        let held = self.hosts.get(&host).and_then(|pins| pins.held.get(name));
        held.into_iter().flatten().copied().collect()
    }

    pub(super) fn host_gone(&mut self, host: usize) {
        self.hosts.remove(&host);
    }
}
