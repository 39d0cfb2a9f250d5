//! What is done to the world: changes of what nodes hold, broken paths, deaths, stalls.

use crate::index::{Index, apply};
use crate::world::{What, World, pair};
use gossip::In;
use protocol::block::StorageId;
use protocol::event::{BlockEvent, EventRun, Holder};
use protocol::hash::PrefixHash;
use protocol::id::{EngineId, Incarnation};
use protocol::time::Span;
use rand_core::RngCore;

/// A silent break of a path shows to libp2p only after so long.
const BREAK_NOTICED: Span = Span::secs(2);

impl World {
    /// Cuts or mends the path between two nodes; streams break only when that is noticed.
    pub(crate) fn block(&mut self, a: usize, b: usize, blocked: bool) {
        self.reach.clear();
        if !blocked {
            self.blocked.remove(&pair(a, b));
            return;
        }
        self.blocked.insert(pair(a, b));
        if let Some(epoch) = self.streams.get(&pair(a, b)).copied() {
            self.push(self.now + BREAK_NOTICED, a, What::Broken { with: b, epoch });
        }
    }

    /// Loses all that goes from `from` to `to`, or no longer. The stream stands.
    pub(crate) fn deafen(&mut self, from: usize, to: usize, deaf: bool) {
        self.reach.clear();
        if deaf {
            self.one_way.insert((from, to));
        } else {
            self.one_way.remove(&(from, to));
        }
    }

    /// Kills a node. `noticed`: the kernel closes its streams; else it is a power cut.
    pub(crate) fn kill(&mut self, n: usize, noticed: bool) {
        self.reach.clear();
        self.nodes[n].up = false;
        self.nodes[n].life += 1;
        let wait = if noticed { Span::ZERO } else { Span::secs(60) };
        let streams: Vec<((usize, usize), u64)> = self
            .streams
            .iter()
            .filter(|((a, b), _)| *a == n || *b == n)
            .map(|(ends, epoch)| (*ends, *epoch))
            .collect();
        for ((a, b), epoch) in streams {
            let other = if a == n { b } else { a };
            self.push(self.now + wait, other, What::Broken { with: n, epoch });
        }
    }

    /// Starts a killed node in a new life, empty, with `counter`; its disk knows the others.
    pub(crate) fn restart(&mut self, n: usize, counter: u64) {
        let gone: Vec<(usize, usize)> =
            self.streams.keys().filter(|(a, b)| *a == n || *b == n).copied().collect();
        for (a, b) in gone {
            self.streams.remove(&(a, b));
            let other = if a == n { b } else { a };
            self.input(other, In::Disconnected(self.nodes[n].id));
        }
        let incarnation = Incarnation { counter, nonce: self.rng.next_u64() };
        self.reach.clear();
        let gossip = self.machine(n, self.nodes[n].key, incarnation);
        let node = &mut self.nodes[n];
        (node.gossip, node.index, node.incarnation) = (gossip, Index::default(), incarnation);
        (node.up, node.tick_at) = (true, None);
        node.life += 1;
        node.truth.clear();
        node.states.clear();
        self.arm(n);
        self.introduce_all(n);
    }

    /// Nothing that happens to `n` is handled for `span`: both cores are busy elsewhere.
    pub(crate) fn stall(&mut self, n: usize, span: Span) {
        // A longer stall put on top of one would reorder what waits.
        if self.nodes[n].asleep_until <= self.now {
            self.nodes[n].asleep_until = self.now + span;
        }
    }

    /// A random change of what `n` holds.
    pub(crate) fn change(&mut self, n: usize) {
        let holder = match self.random(3) {
            0 => Holder::Engine(EngineId(0)),
            1 => Holder::Dram,
            _ => Holder::Nvme,
        };
        let (storage, granules) = (StorageId(1), self.random(40) + 1);
        let prefix = PrefixHash(u128::from(self.random(8)) * 1000 + u128::from(granules));
        let tokens = granules as u32 * 64;
        let event = match self.random(100) {
            0 => BlockEvent::Cleared { holder },
            1..=35 => BlockEvent::Removed { prefix, tokens, storage, holder },
            _ => BlockEvent::Stored { prefix, tokens, storage, holder },
        };
        let run = match &event {
            BlockEvent::Cleared { holder } => EventRun::Cleared { holder: *holder },
            BlockEvent::Removed { .. } => {
                EventRun::Removed { storage, holder, first: tokens, hashes: vec![prefix] }
            }
            BlockEvent::Stored { .. } => {
                EventRun::Stored { storage, holder, first: tokens, hashes: vec![prefix] }
            }
        };
        let node = &mut self.nodes[n];
        apply(&node.id, &mut node.truth, vec![run]);
        self.input(n, In::Event(event));
    }

    /// Everybody who is up changes `per_step` things every 25 ms for `span`.
    pub(crate) fn churn(&mut self, span: Span, per_step: usize) {
        let end = self.now + span;
        while self.now < end {
            for n in 0..self.nodes.len() {
                for _ in 0..if self.nodes[n].up { per_step } else { 0 } {
                    self.change(n);
                }
            }
            self.run(Span::millis(25));
        }
    }
}
