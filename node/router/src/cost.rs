//! What a placement costs, in milliseconds.
//!
//! `cost(w) = max(queue(w), onboard(w, 0..k)) + prefill(w, n−k | k) + λ·pressure(w) + μ·gpu(w)`
//! with the split `k` that makes it least, among those where somebody's run ends.

use crate::Params;
use crate::loads::{Loads, Node, Path};
use crate::runs::{Board, Holding};
use protocol::event::{EngineReport, INDEX_GRANULE, MemberState};
use protocol::id::NodeId;
use protocol::plan::{Estimate, Source};
use protocol::time::{Span, Time};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Most holders considered as sources for one target: those with the longest runs.
const MAX_PEERS: usize = 16;
/// A split must be better by this many milliseconds to replace a shorter one.
const BETTER_MS: f64 = 1e-6;

/// The prompt, as the cost sees it.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) tokens: u32,
    pub(crate) osl: u32,
    pub(crate) me: NodeId,
    pub(crate) now: Time,
}

/// An engine's speed, with what it has not measured filled in.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Speed {
    /// Tokens per second at short context.
    pub(crate) prefill: f64,
    /// Extra nanoseconds per new token and context token.
    pub(crate) attention_ns: f64,
    /// Milliseconds per decode step.
    pub(crate) decode_ms: f64,
}

impl Speed {
    /// What an unmeasured engine is taken for: the best that any of `reports` measured, else the
    /// defaults.
    pub(crate) fn best<'a>(
        reports: impl Iterator<Item = &'a EngineReport>,
        params: &Params,
    ) -> Self {
        let (mut prefill, mut decode) = (0f32, f32::INFINITY);
        for load in reports.map(|report| report.load) {
            prefill = prefill.max(load.prefill_rate);
            if load.decode_ms > 0.0 {
                decode = decode.min(load.decode_ms);
            }
        }
        Self {
            prefill: if prefill > 0.0 { f64::from(prefill) } else { params.prefill_tokens_s },
            attention_ns: 0.0,
            decode_ms: if decode.is_finite() { f64::from(decode) } else { params.decode_ms },
        }
    }

    /// The speed of an engine.
    pub(crate) fn of(report: &EngineReport, unmeasured: Self, params: &Params) -> Self {
        let load = report.load;
        let or = |value: f32, default: f64| {
            if value.is_finite() && value > 0.0 { f64::from(value) } else { default }
        };
        let decode_ms = or(load.decode_ms, unmeasured.decode_ms);
        match params.assume_prefill_tokens_s {
            Some(prefill) => Self { prefill: prefill.max(1e-3), attention_ns: 0.0, decode_ms },
            None => Self {
                prefill: or(load.prefill_rate, unmeasured.prefill),
                attention_ns: or(load.attention_ns, unmeasured.attention_ns),
                decode_ms,
            },
        }
    }

    /// Milliseconds to compute `new` tokens after `context` others: linear work, and attention of
    /// each new token to all before it.
    pub(crate) fn prefill_ms(&self, new: u32, context: u32) -> f64 {
        let (new, context) = (f64::from(new), f64::from(context));
        let pairs = new * context + new * new / 2.0;
        new / self.prefill * 1e3 + pairs * self.attention_ns * 1e-6
    }
}

/// Speed of the way between two nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Way {
    rtt_ms: f64,
    bytes_s: f64,
}

fn way_to(node: &Node, params: &Params) -> Option<Way> {
    let path = node.path.unwrap_or(Path { rtt_ms: 0.0, bytes_s: 0.0, reachable: true });
    let or = |value: f64, default: f64| {
        if value.is_finite() && value > 0.0 { value } else { default }
    };
    path.reachable.then(|| Way {
        rtt_ms: or(f64::from(path.rtt_ms), params.rtt_ms),
        bytes_s: params
            .assume_bandwidth_bytes_s
            .unwrap_or(or(path.bytes_s, params.bandwidth_bytes_s)),
    })
}

/// The way from `from` to `to`. Measured are the ways from here; between two others the worse of
/// both is taken. `None`: no way, infinite cost.
fn way(from: &Node, to: &Node, me: NodeId, params: &Params) -> Option<Way> {
    if to.view.node == me {
        return way_to(from, params);
    }
    if from.view.node == me {
        return way_to(to, params);
    }
    let (a, b) = (way_to(from, params)?, way_to(to, params)?);
    Some(Way { rtt_ms: a.rtt_ms.max(b.rtt_ms), bytes_s: a.bytes_s.min(b.bytes_s) })
}

/// A holder that a target could fetch from.
struct Peer {
    node: NodeId,
    /// Usable tokens of the prompt that it has, in DRAM or on NVMe.
    tokens: u32,
    /// … in DRAM. What lies beyond is read into its DRAM first, then sent.
    dram: u32,
    way: Way,
    /// Bytes it owes others, plus what this plan takes from it.
    owed: f64,
    /// Milliseconds of reading that this plan asks of its NVMe.
    reads_ms: f64,
}

impl Peer {
    /// When it has sent `bytes` more, with `read_ms` more of reading before.
    fn finish_ms(&self, bytes: f64, read_ms: f64) -> f64 {
        let send_ms = (self.owed + bytes) / self.way.bytes_s.max(1.0) * 1e3;
        self.way.rtt_ms + self.reads_ms + read_ms + send_ms
    }
}

/// What of the prompt the target gets without peers.
#[derive(Clone, Copy)]
struct Local {
    /// Tokens from the start.
    tokens: u32,
    /// Of these, without a copy into the engine's pool.
    in_engine: u32,
    /// Milliseconds until they are there.
    wait_ms: f64,
}

/// A target's best split and what it costs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Choice {
    pub(crate) estimate: Estimate,
    /// The compared sum, in full precision.
    pub(crate) cost_ms: f64,
    pub(crate) sources: Vec<Source>,
}

/// One engine of one node, priced for one prompt.
pub(crate) struct Pricing<'a> {
    pub(crate) ask: Ask,
    pub(crate) loads: &'a Loads,
    pub(crate) board: &'a Board,
    pub(crate) node: &'a Node,
    pub(crate) report: &'a EngineReport,
    pub(crate) speed: Speed,
}

/// A stretch of the prompt and the number of the peer it comes from.
struct Stretch {
    peer: usize,
    start: u32,
    end: u32,
}

impl Pricing<'_> {
    fn holding(&self) -> &Holding {
        self.board.of(&self.node.view.node)
    }

    /// Tokens of one block of the target.
    fn block(&self) -> u32 {
        self.report.block_tokens.max(1)
    }

    /// Tokens of a run that the target can use: whole blocks, and never the last token, whose
    /// logits are needed.
    fn usable(&self, granules: u32) -> u32 {
        let whole = |tokens: u32| tokens - tokens % self.block();
        whole(self.ask.tokens.saturating_sub(1)).min(whole(granules.saturating_mul(INDEX_GRANULE)))
    }

    fn bytes_per_token(&self) -> f64 {
        self.report.block_bytes as f64 / f64::from(self.block())
    }

    fn import_ms(&self, tokens: u32) -> f64 {
        f64::from(tokens) * self.bytes_per_token() / self.loads.params().dram_bytes_s * 1e3
    }

    /// Milliseconds of waiting behind earlier work, and the share of the pool in use with this
    /// request in it. Work: uncached tokens reported and placed since; and where the pool or all seats
    /// are taken, the time until answers end and free them.
    fn queue(&self, in_engine: u32) -> (f64, f64) {
        let load = self.report.load;
        let pending = self.holding().pending(self.node, self.report.engine, self.loads);
        let waiting = f64::from(load.prefill_tokens) + pending.tokens;
        let block = f64::from(self.block());
        let osl = f64::from(self.ask.osl);
        let mine = f64::from(self.ask.tokens.saturating_sub(in_engine)) + osl;
        let theirs = pending.tokens + pending.requests * osl;
        let blocks = f64::from(load.active_blocks) + (mine + theirs) / block;
        let fill = match load.total_blocks {
            0 => 0.0,
            total => blocks / f64::from(total),
        };
        let requests = f64::from(load.running) + f64::from(load.waiting) + pending.requests + 1.0;
        let taken = match load.seats {
            0 => 0.0,
            seats => requests / f64::from(seats),
        };
        let full = (fill.max(taken) - 1.0).max(0.0) * osl * self.speed.decode_ms;
        (waiting / self.speed.prefill * 1e3 + full, fill)
    }

    fn price(&self, local: Local, split: u32, peers_ms: f64) -> Choice {
        let params = self.loads.params();
        let (queue, fill) = self.queue(local.in_engine);
        let onboard =
            local.wait_ms.max(peers_ms) + self.import_ms(split.saturating_sub(local.in_engine));
        let computed = self.ask.tokens - split;
        let prefill = self.speed.prefill_ms(computed, split);
        let decode = params.decode_weight * f64::from(self.ask.osl) * self.speed.decode_ms * fill;
        let gpu = params.gpu_weight * prefill;
        let cost = queue.max(onboard) + prefill + decode + gpu;
        let estimate = Estimate {
            queue_ms: queue as f32,
            onboard_ms: onboard as f32,
            prefill_ms: prefill as f32,
            decode_ms: decode as f32,
            gpu_ms: gpu as f32,
            cost_ms: cost as f32,
            local_tokens: local.tokens,
            peer_tokens: split - local.tokens,
            computed_tokens: computed,
        };
        Choice { estimate, cost_ms: cost, sources: Vec::new() }
    }

    /// What the target has, with and without what it is about to have, and what it could read
    /// from its NVMe.
    fn locals(&self) -> [Local; 3] {
        let (holding, storage) = (self.holding(), self.report.storage);
        let usable = |granules| self.usable(granules);
        let in_engine = usable(holding.engine(self.node, self.report.engine, storage));
        let tokens = in_engine.max(usable(holding.dram(self.node, storage)));
        let now = Local { tokens, in_engine, wait_ms: 0.0 };
        let (granules, done) =
            holding.computing(self.node, self.report.engine, storage, self.ask.now);
        let soon = usable(granules);
        let wait_ms = done.since(self.ask.now).as_ms();
        let computing = Local { tokens: tokens.max(soon), in_engine: in_engine.max(soon), wait_ms };
        let deep = usable(holding.nvme(self.node, storage)).max(tokens);
        let nvme = Local { tokens: deep, in_engine, wait_ms: self.read_ms(deep - tokens) };
        let only = |local: Local| if local.tokens > tokens { local } else { now };
        [now, only(computing), only(nvme)]
    }

    /// Milliseconds to read a stretch of the prompt from NVMe.
    fn read_ms(&self, tokens: u32) -> f64 {
        f64::from(tokens) * self.bytes_per_token() / self.loads.params().nvme_bytes_s.max(1.0) * 1e3
    }

    /// Milliseconds that a peer must read from NVMe to send the stretch from `start` to `end`.
    fn reads_of(&self, peer: &Peer, start: u32, end: u32) -> f64 {
        self.read_ms(end.saturating_sub(start.max(peer.dram)))
    }

    /// Holders in DRAM or on NVMe beyond what the target has, the longest first.
    fn peers(&self, nodes: &[Arc<Node>], beyond: u32) -> Vec<Peer> {
        let params = self.loads.params();
        let mut peers: Vec<Peer> = nodes
            .iter()
            .filter(|node| node.view.node != self.node.view.node)
            .filter(|node| matches!(node.view.state, MemberState::Alive | MemberState::Draining))
            .filter_map(|node| {
                let (holding, storage) = (self.board.of(&node.view.node), self.report.storage);
                let dram = self.usable(holding.dram(node, storage));
                let tokens = dram.max(self.usable(holding.nvme(node, storage)));
                let way =
                    (tokens > beyond).then(|| way(node, self.node, self.ask.me, params))??;
                let owed = node.view.owed_bytes as f64;
                Some(Peer { node: node.view.node, tokens, dram, way, owed, reads_ms: 0.0 })
            })
            .collect();
        peers.sort_by(|a, b| {
            let quick = a.finish_ms(0.0, 0.0).total_cmp(&b.finish_ms(0.0, 0.0));
            b.tokens.cmp(&a.tokens).then(quick).then(a.node.cmp(&b.node))
        });
        peers.truncate(MAX_PEERS);
        peers
    }

    /// The best split, with peers among `nodes` (none: no fetch).
    pub(crate) fn choose(&self, nodes: &[Arc<Node>]) -> Choice {
        let [now, computing, nvme] = self.locals();
        let mut best = self.with_peers(now, nodes);
        for local in [computing, nvme].into_iter().filter(|local| local.tokens > now.tokens) {
            let other = self.with_peers(local, nodes);
            if other.cost_ms < best.cost_ms - BETTER_MS {
                best = other;
            }
        }
        best
    }

    fn with_peers(&self, local: Local, nodes: &[Arc<Node>]) -> Choice {
        let mut best = self.price(local, local.tokens, 0.0);
        let mut peers = self.peers(nodes, local.tokens);
        let mut ends: Vec<u32> = peers.iter().flat_map(|peer| [peer.dram, peer.tokens]).collect();
        ends.retain(|end| *end > local.tokens);
        ends.sort_unstable();
        ends.dedup();
        let (mut taken, mut used, mut peers_ms) = (Vec::new(), 0, 0f64);
        let mut start = local.tokens;
        for end in ends {
            let bytes = f64::from(end - start) * self.bytes_per_token();
            let reach = peers.iter_mut().enumerate().filter(|(_, peer)| peer.tokens >= end);
            let finish = |peer: &Peer| peer.finish_ms(bytes, self.reads_of(peer, start, end));
            let quickest = reach.min_by(|(_, a), (_, b)| finish(a).total_cmp(&finish(b)));
            let Some((number, peer)) = quickest else {
                break;
            };
            peers_ms = peers_ms.max(finish(peer));
            peer.reads_ms += self.reads_of(peer, start, end);
            peer.owed += bytes;
            taken.push(Stretch { peer: number, start, end });
            let choice = self.price(local, end, peers_ms);
            if choice.cost_ms < best.cost_ms - BETTER_MS {
                (best, used) = (choice, taken.len());
            }
            start = end;
        }
        taken.truncate(used);
        best.sources = self.sources(&taken, &peers, f64::from(best.estimate.queue_ms));
        best
    }

    /// A holder is exact to the block, the index to [`INDEX_GRANULE`]: the holder of the last known
    /// granule is also asked for the blocks of the next one; those it lacks it answers at once.
    fn beyond(&self, known: u32) -> u32 {
        let block = self.block();
        let whole = self.ask.tokens.saturating_sub(1) / block * block;
        known.saturating_add(INDEX_GRANULE).saturating_sub(block).min(whole).max(known)
    }

    /// The plan's sources: neighbours from one peer become one stretch.
    fn sources(&self, taken: &[Stretch], peers: &[Peer], queue_ms: f64) -> Vec<Source> {
        let params = self.loads.params();
        let known = taken.last().map_or(0, |stretch| stretch.end);
        taken
            .chunk_by(|a, b| a.peer == b.peer)
            .filter_map(|run| {
                let (first, last) = (run.first()?, run.last()?);
                let recompute = self.speed.prefill_ms(last.end - first.start, first.start);
                let allowed =
                    (recompute * params.deadline_margin).max(params.deadline_min_ms) + queue_ms;
                Some(Source {
                    node: peers.get(first.peer)?.node,
                    start: first.start,
                    end: if last.end == known { self.beyond(known) } else { last.end },
                    deadline: Span::from_ms(allowed),
                })
            })
            .collect()
    }
}
