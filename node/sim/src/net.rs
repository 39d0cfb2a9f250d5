//! Streams between nodes: reliable and in order while they stand, with delay, bandwidth and cuts.
//!
//! One [`Stream`] stands for a libp2p stream of gossip, a QUIC stream that serves a prompt, or one
//! that carries blocks. Only bytes cross it. A cut holds its frames back, as retransmission does,
//! until the cut heals or the connection's idle time is over.

use crate::dice::Dice;
use crate::scenario::Network;
use protocol::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

/// Number of a stream; never used twice in a run.
pub(crate) type StreamId = u64;

/// What a stream is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Gossip,
    Serve,
    Blocks,
}

/// One end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// Who opened it.
    Opener,
    /// The other.
    Acceptor,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Opener => Self::Acceptor,
            Self::Acceptor => Self::Opener,
        }
    }
}

/// What crosses a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    /// An encoded frame, with raw bytes behind it.
    Data { head: Vec<u8>, body: Vec<u8> },
    /// The sender says no more.
    Fin,
}

/// One end: who, in which life, and what is on its way there.
#[derive(Debug)]
struct End {
    host: usize,
    life: u64,
    queue: VecDeque<Frame>,
    /// No frame arrives there before this.
    last: Time,
    /// It does not read now.
    paused: bool,
    /// Frames that arrived while it did not read.
    swallowed: u32,
}

/// A stream that stands.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) kind: Kind,
    ends: [End; 2],
}

impl Stream {
    fn end(&self, side: Side) -> &End {
        let [opener, acceptor] = &self.ends;
        match side {
            Side::Opener => opener,
            Side::Acceptor => acceptor,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End {
        let [opener, acceptor] = &mut self.ends;
        match side {
            Side::Opener => opener,
            Side::Acceptor => acceptor,
        }
    }

    pub(crate) fn host(&self, side: Side) -> (usize, u64) {
        let end = self.end(side);
        (end.host, end.life)
    }

    /// The side on which a host is.
    pub(crate) fn side_of(&self, host: usize) -> Option<Side> {
        [Side::Opener, Side::Acceptor].into_iter().find(|side| self.end(*side).host == host)
    }

    /// Frames on their way to a side.
    pub(crate) fn waiting(&self, side: Side) -> usize {
        self.end(side).queue.len()
    }
}

/// What became of an arrival.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A frame is there.
    Frame(Frame),
    /// Held back: look again then.
    Later(Time),
    /// Nothing: the stream is gone, or its reader does not read.
    Nothing,
}

/// All streams and cuts.
pub(crate) struct Net {
    settings: Network,
    dice: Dice,
    streams: BTreeMap<StreamId, Stream>,
    gossip: BTreeMap<(usize, usize), StreamId>,
    last: StreamId,
    cuts: BTreeMap<(usize, usize), u64>,
    cut_serial: u64,
    uplinks: BTreeMap<usize, Time>,
    bases: BTreeMap<(usize, usize), Span>,
    /// Bytes sent, by kind of stream: gossip, serve, blocks; and on the topic.
    pub(crate) bytes: [u64; 4],
    reached: BTreeMap<usize, BTreeSet<usize>>,
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// How long a held frame waits before it is tried again.
const RETRANSMIT: Span = Span::millis(100);

impl Net {
    pub(crate) fn new(settings: Network, seed: u64) -> Self {
        Self {
            settings,
            dice: Dice::new(seed, "network"),
            streams: BTreeMap::new(),
            gossip: BTreeMap::new(),
            last: 0,
            cuts: BTreeMap::new(),
            cut_serial: 0,
            uplinks: BTreeMap::new(),
            bases: BTreeMap::new(),
            bytes: [0; 4],
            reached: BTreeMap::new(),
        }
    }

    /// One-way delay between two hosts, without what lies before it on the sender's wire.
    pub(crate) fn delay(&mut self, a: usize, b: usize) -> Span {
        let (low, high) = (self.settings.delay_min_us, self.settings.delay_max_us);
        let dice = &mut self.dice;
        let base = *self
            .bases
            .entry(pair(a, b))
            .or_insert_with(|| Span(dice.between(low * 1000, (low + high) / 2 * 1000)));
        Span(base.0 + self.dice.below((high - low) * 500 + 1))
    }

    /// The least delay between two hosts, as a ping would measure it.
    pub(crate) fn rtt(&self, a: usize, b: usize) -> Option<Span> {
        self.bases.get(&pair(a, b)).map(|base| Span(base.0 * 2))
    }

    /// Opens a stream; both ends must exist in the lives given.
    pub(crate) fn open(&mut self, kind: Kind, from: (usize, u64), to: (usize, u64)) -> StreamId {
        self.last += 1;
        let end = |(host, life)| End {
            host,
            life,
            queue: VecDeque::new(),
            last: Time::ZERO,
            paused: false,
            swallowed: 0,
        };
        self.streams.insert(self.last, Stream { kind, ends: [end(from), end(to)] });
        if kind == Kind::Gossip {
            self.gossip.insert(pair(from.0, to.0), self.last);
            self.reached.clear();
        }
        self.last
    }

    pub(crate) fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(&id)
    }

    /// The gossip stream between two hosts.
    pub(crate) fn gossip(&self, a: usize, b: usize) -> Option<StreamId> {
        self.gossip.get(&pair(a, b)).copied()
    }

    /// Removes a stream with all that is on its way.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        if stream.kind == Kind::Gossip {
            let [a, b] = &stream.ends;
            let between = pair(a.host, b.host);
            if self.gossip.get(&between) == Some(&id) {
                self.gossip.remove(&between);
            }
            self.reached.clear();
        }
        Some(stream)
    }

    /// Streams that `host` has in `life`, or in any life.
    pub(crate) fn streams_of(&self, host: usize, life: Option<u64>) -> Vec<StreamId> {
        let has = |end: &End| end.host == host && life.is_none_or(|life| end.life == life);
        let of = self.streams.iter().filter(|(_, stream)| stream.ends.iter().any(has));
        of.map(|(id, _)| *id).collect()
    }

    /// Streams between two hosts.
    pub(crate) fn streams_between(&self, a: usize, b: usize) -> Vec<StreamId> {
        let between = |stream: &Stream| {
            let [one, other] = &stream.ends;
            pair(one.host, other.host) == pair(a, b)
        };
        self.streams.iter().filter(|(_, s)| between(s)).map(|(id, _)| *id).collect()
    }

    /// Sends a frame from `side`; when it arrives at the other, or `None` when the stream is gone.
    pub(crate) fn send(
        &mut self,
        now: Time,
        id: StreamId,
        side: Side,
        frame: Frame,
    ) -> Option<Time> {
        let stream = self.streams.get(&id)?;
        let (from, to) = (stream.host(side).0, stream.host(side.other()).0);
        let bytes = match &frame {
            Frame::Data { head, body } => (head.len() + body.len()) as u64,
            Frame::Fin => 0,
        };
        let counter = match stream.kind {
            Kind::Gossip => self.bytes.first_mut(),
            Kind::Serve => self.bytes.get_mut(1),
            Kind::Blocks => self.bytes.get_mut(2),
        };
        counter.into_iter().for_each(|counter| *counter += bytes);
        let sent = match stream.kind {
            Kind::Blocks => self.transmit(now, from, bytes),
            // Control frames go between the packets of blocks.
            Kind::Gossip | Kind::Serve => now,
        };
        let delay = self.delay(from, to);
        let end = self.streams.get_mut(&id)?.end_mut(side.other());
        let at = (sent + delay).max(end.last);
        end.last = at;
        end.queue.push_back(frame);
        Some(at)
    }

    /// When the last of `bytes` has left a host that sends one thing after the other.
    fn transmit(&mut self, now: Time, host: usize, bytes: u64) -> Time {
        let takes = Span::from_ms(bytes as f64 / self.settings.bytes_s * 1e3);
        let free = self.uplinks.entry(host).or_default();
        *free = now.max(*free) + takes;
        *free
    }

    /// The next frame for a side, at the time that [`Self::send`] gave.
    pub(crate) fn arrive(&mut self, now: Time, id: StreamId, side: Side) -> Arrival {
        let Some(stream) = self.streams.get(&id) else { return Arrival::Nothing };
        let (from, to) = (stream.host(side.other()).0, stream.host(side).0);
        if self.is_cut(from, to) {
            return Arrival::Later(now + RETRANSMIT);
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Arrival::Nothing };
        let end = stream.end_mut(side);
        if end.paused {
            end.swallowed += 1;
            return Arrival::Nothing;
        }
        end.queue.pop_front().map_or(Arrival::Nothing, Arrival::Frame)
    }

    /// A side stops reading, or reads again; how many frames are there already.
    pub(crate) fn pause(&mut self, id: StreamId, side: Side, paused: bool) -> u32 {
        let Some(stream) = self.streams.get_mut(&id) else { return 0 };
        let end = stream.end_mut(side);
        end.paused = paused;
        if paused { 0 } else { std::mem::take(&mut end.swallowed) }
    }

    /// Closes the way from one host to another; the number of the cut.
    pub(crate) fn cut(&mut self, from: usize, to: usize) -> u64 {
        self.cut_serial += 1;
        self.cuts.insert((from, to), self.cut_serial);
        self.reached.clear();
        self.cut_serial
    }

    /// Opens a way again, if this cut is the one that closes it.
    pub(crate) fn heal(&mut self, from: usize, to: usize, cut: u64) {
        if self.cuts.get(&(from, to)) == Some(&cut) {
            self.cuts.remove(&(from, to));
            self.reached.clear();
        }
    }

    /// Opens all ways.
    pub(crate) fn heal_all(&mut self) {
        self.cuts.clear();
        self.reached.clear();
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains_key(&(from, to))
    }

    pub(crate) fn cut_is(&self, from: usize, to: usize, cut: u64) -> bool {
        self.cuts.get(&(from, to)) == Some(&cut)
    }

    /// Whether both directions are open.
    pub(crate) fn is_open(&self, a: usize, b: usize) -> bool {
        !self.is_cut(a, b) && !self.is_cut(b, a)
    }

    pub(crate) fn idle(&self) -> Span {
        Span::secs(self.settings.idle_s)
    }

    /// Whom a topic message of `from` reaches, passed on over gossip streams from neighbour to
    /// neighbour; without `from` itself.
    pub(crate) fn reach(&mut self, from: usize) -> Vec<usize> {
        if let Some(known) = self.reached.get(&from) {
            return known.iter().copied().collect();
        }
        let mut neighbours: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (a, b) in self.gossip.keys() {
            neighbours.entry(*a).or_default().push(*b);
            neighbours.entry(*b).or_default().push(*a);
        }
        let mut reached = BTreeSet::from([from]);
        let mut fresh = vec![from];
        while let Some(at) = fresh.pop() {
            for next in neighbours.get(&at).into_iter().flatten() {
                if !self.is_cut(at, *next) && reached.insert(*next) {
                    fresh.push(*next);
                }
            }
        }
        reached.remove(&from);
        let list = reached.iter().copied().collect();
        self.reached.insert(from, reached);
        list
    }

    /// Delay of a topic message on its way through the mesh.
    pub(crate) fn topic_delay(&mut self) -> Span {
        let most = Span::millis(self.settings.topic_delay_max_ms.max(1));
        self.dice.span(Span(500_000), Span(most.0.max(500_000)))
    }
}
