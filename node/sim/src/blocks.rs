//! Blocks between nodes: the reader's and the holder's side, as the transfer agent does it. Every
//! block is verified when it arrives, before it is reported.

use crate::host::Role;
use crate::mail::{Mail, Timer};
use crate::net::{Frame, Kind, StreamId};
use crate::world::World;
use kvstore::In;
use protocol::block::{BlockKey, SignedDigest};
use protocol::op::{FetchOp, Fetched, OpId, ReadId, Readable};
use protocol::time::{Span, Time};
use protocol::wire::blocks::{BLOCKS_MAX, BlockHead, BlocksRequest};
use protocol::wire::{decode, encode};

/// A reader cannot ask for more time than this.
const WITHIN_MAX_MS: u32 = 60_000;
/// Requests that a holder answers at once; more are told that it is busy.
const CREDITS: usize = 64;
/// Weight of a new measurement of bandwidth.
const SMOOTHING: f64 = 0.3;

/// A fetch under way.
pub(crate) struct Fetching {
    op: FetchOp,
    stream: Option<StreamId>,
    /// Blocks decided so far.
    next: usize,
    begun: Time,
    bytes: u64,
    lied: bool,
}

/// Blocks lent to a peer.
pub(crate) struct Lending {
    stream: StreamId,
    bytes: u64,
}

impl World {
    /// The block manager wants blocks of a peer.
    pub(crate) fn fetch(&mut self, h: usize, op: FetchOp) {
        let now = self.now;
        let (id, from, deadline) = (op.op, op.from, op.deadline);
        let keys: Vec<BlockKey> = op.blocks.iter().take(BLOCKS_MAX).map(|(key, _)| *key).collect();
        let left = u32::try_from(deadline.since(now).0 / 1_000_000).unwrap_or(u32::MAX).max(1);
        let request = encode(&BlocksRequest { keys, within_ms: left }).unwrap_or_default();
        let quarantined = self.way(h, from).is_some_and(|way| way.quarantined_until > now);
        let stream = match quarantined {
            true => None,
            false => self.open(h, Kind::Blocks, &from, request),
        };
        let Some(live) = self.live(h) else { return };
        if let Some(stream) = stream {
            live.roles.insert(stream, Role::Fetch(id));
        }
        let fetching = Fetching { op, stream, next: 0, begun: now, bytes: 0, lied: false };
        live.fetches.insert(id, fetching);
        if quarantined {
            return self.fetch_over(h, id);
        }
        if stream.is_none() {
            let after =
                self.fates.of("unreached").span(Span::millis(1), crate::rim::CONNECT_WITHIN);
            self.timer(h, after, Timer::Unfetched(id));
        }
        self.timer(h, deadline.since(now), Timer::Fetch(id));
    }

    /// The next block of a fetch.
    pub(crate) fn block_arrives(&mut self, h: usize, id: OpId, head: &[u8], mut body: Vec<u8>) {
        let faults = &self.scenario.faults;
        let flips = if self.stormy { faults.transit_flips } else { 0.0 };
        if !body.is_empty() && (self.fates.of("transit").share(flips) || self.plant_flips_transit())
        {
            let at = self.fates.of("transit").index(body.len());
            let bit = self.fates.of("transit").below(8);
            body.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
        }
        let Some(live) = self.live(h) else { return };
        let Some(fetching) = live.fetches.get_mut(&id) else { return };
        let index = fetching.next;
        let Some((key, slot)) = fetching.op.blocks.get(index).copied() else { return };
        fetching.next += 1;
        let result = match decode(head) {
            Ok(BlockHead::Absent) => Fetched::Absent,
            Ok(BlockHead::Busy) => return self.end_fetch(h, id),
            Ok(BlockHead::Present { digest, length })
                if length == fetching.op.block_bytes && length == body.len() as u64 =>
            {
                match live.dram.writer(slot) {
                    Ok(place) => {
                        place.copy_from_slice(&body);
                        self.watch_write(h, slot);
                        self.verify(h, digest, &key, &body)
                    }
                    Err(_) => Fetched::Failed,
                }
            }
            // What makes no sense ends the fetch.
            _ => {
                self.lied(h, id);
                self.tell_fetched(h, id, index, Fetched::Corrupt);
                return self.end_fetch(h, id);
            }
        };
        if matches!(result, Fetched::Corrupt) {
            self.lied(h, id);
        } else if let Some(fetching) = self.live(h).and_then(|live| live.fetches.get_mut(&id)) {
            fetching.bytes += body.len() as u64;
        }
        self.tell_fetched(h, id, index, result);
    }

    fn verify(
        &mut self,
        h: usize,
        digest: Box<SignedDigest>,
        key: &BlockKey,
        bytes: &[u8],
    ) -> Fetched {
        let producer = digest.producer;
        let genuine = digest.covers(key, bytes) || self.plant_skips_digest();
        let is_member = self.hosts.iter().any(|host| host.id == producer);
        match genuine && is_member {
            true => {
                self.watch.figures.verified += 1;
                Fetched::Verified(digest)
            }
            false => {
                self.watch.figures.corrupt += 1;
                let _ = h;
                Fetched::Corrupt
            }
        }
    }

    fn lied(&mut self, h: usize, id: OpId) {
        if let Some(fetching) = self.live(h).and_then(|live| live.fetches.get_mut(&id)) {
            fetching.lied = true;
        }
    }

    fn tell_fetched(&mut self, h: usize, op: OpId, index: usize, result: Fetched) {
        self.mail(h, Mail::Store(Box::new(In::Fetched { op, index, result })));
    }

    /// The holder has sent all.
    pub(crate) fn fetch_ends(&mut self, h: usize, id: OpId, stream: StreamId) {
        // The holder learns that all has arrived.
        self.reset_stream(h, stream);
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        if let Some(fetching) = live.fetches.get(&id).filter(|f| f.bytes > 0) {
            let (from, bytes) = (fetching.op.from, fetching.bytes);
            let took = now.since(fetching.begun).as_ms().max(0.01);
            let rate = bytes as f64 / took * 1e3;
            if let Some(way) = self.way(h, from) {
                way.bytes_s = match way.bytes_s > 0.0 {
                    true => way.bytes_s * (1.0 - SMOOTHING) + rate * SMOOTHING,
                    false => rate,
                };
            }
        }
        self.fetch_over(h, id);
    }

    /// Nobody waits for the fetch any more, or its holder is over its limits.
    pub(crate) fn end_fetch(&mut self, h: usize, id: OpId) {
        let Some(live) = self.live(h) else { return };
        let Some(stream) = live.fetches.get(&id).map(|fetching| fetching.stream) else { return };
        if let Some(stream) = stream {
            self.reset_stream(h, stream);
        }
        self.fetch_over(h, id);
    }

    pub(crate) fn fetch_times_out(&mut self, h: usize, id: OpId) {
        let now = self.now;
        let Some(live) = self.live(h) else { return };
        let Some(fetching) = live.fetches.get(&id) else { return };
        // A peer that says nothing has failed only if it had some time.
        let silent = fetching.next == 0 && now.since(fetching.begun) >= Span::millis(250);
        if silent {
            let from = fetching.op.from;
            self.lost(h, from);
        }
        self.end_fetch(h, id);
    }

    /// The holder could not be reached, or went away.
    pub(crate) fn fetch_lost(&mut self, h: usize, id: OpId) {
        let Some(live) = self.live(h) else { return };
        let Some(from) = live.fetches.get(&id).map(|fetching| fetching.op.from) else { return };
        self.lost(h, from);
        self.fetch_over(h, id);
    }

    fn fetch_over(&mut self, h: usize, op: OpId) {
        let Some(live) = self.live(h) else { return };
        if let Some(fetching) = live.fetches.remove(&op) {
            if fetching.lied {
                let until = self.now + crate::rim::QUARANTINE;
                if let Some(way) = self.way(h, fetching.op.from) {
                    way.quarantined_until = until;
                }
            }
            self.mail(h, Mail::Store(Box::new(In::FetchEnded { op })));
        }
    }

    /// A peer asks for blocks.
    pub(crate) fn blocks_wanted(&mut self, h: usize, stream: StreamId, bytes: &[u8]) {
        let request = match decode::<BlocksRequest>(bytes) {
            Ok(request) if request.keys.len() <= BLOCKS_MAX => request,
            _ => return self.reset_stream(h, stream),
        };
        let peer = self.net.stream(stream).map(|s| s.host(crate::net::Side::Opener).0);
        let Some(reader) = peer.and_then(|peer| self.hosts.get(peer)).map(|host| host.id) else {
            return;
        };
        let Some(live) = self.live(h) else { return };
        if live.lendings.len() >= CREDITS {
            live.roles.insert(stream, Role::Lend(None));
            let head = encode(&BlockHead::Busy).unwrap_or_default();
            self.send(h, stream, Frame::Data { head, body: Vec::new() });
            return self.send(h, stream, Frame::Fin);
        }
        let read = ReadId(live.next());
        live.roles.insert(stream, Role::Lend(Some(read)));
        live.lendings.insert(read, Lending { stream, bytes: 0 });
        let within = Span::millis(request.within_ms.min(WITHIN_MAX_MS).into());
        let input = In::Read { read, reader, keys: request.keys, within };
        self.mail(h, Mail::Store(Box::new(input)));
        self.timer(h, within, Timer::Lend(read));
    }

    /// The block manager says what may be read.
    pub(crate) fn read_granted(&mut self, h: usize, read: ReadId, blocks: Vec<Readable>) {
        let liar = self.hosts.get(h).is_some_and(|host| host.is_liar) && self.stormy;
        let Some(live) = self.live(h) else { return };
        let Some(stream) = live.lendings.get(&read).map(|lending| lending.stream) else {
            // The reader has gone.
            return self.mail(h, Mail::Store(Box::new(In::ReadDone(read))));
        };
        let mut owed = 0;
        for block in blocks {
            let Some(live) = self.live(h) else { return };
            let bytes = block.place.as_ref().and_then(|(slot, _)| live.dram.reader(*slot).ok());
            let frame = match (bytes.map(<[u8]>::to_vec), block.place) {
                (Some(mut body), Some((_, digest))) => {
                    if liar && self.fates.of("liars").share(0.5) {
                        body.reverse();
                    }
                    owed += body.len() as u64;
                    let head =
                        BlockHead::Present { digest: Box::new(digest), length: body.len() as u64 };
                    Frame::Data { head: encode(&head).unwrap_or_default(), body }
                }
                _ => Frame::Data {
                    head: encode(&BlockHead::Absent).unwrap_or_default(),
                    body: Vec::new(),
                },
            };
            self.send(h, stream, frame);
        }
        self.send(h, stream, Frame::Fin);
        if let Some(live) = self.live(h) {
            live.owed_bytes += owed;
            if let Some(lending) = live.lendings.get_mut(&read) {
                lending.bytes = owed;
            }
        }
    }

    /// The peer has read, or its time is over, or it has gone.
    pub(crate) fn end_lending(&mut self, h: usize, read: ReadId) {
        let Some(live) = self.live(h) else { return };
        let Some(lending) = live.lendings.remove(&read) else { return };
        live.owed_bytes = live.owed_bytes.saturating_sub(lending.bytes);
        self.reset_stream(h, lending.stream);
        self.mail(h, Mail::Store(Box::new(In::ReadDone(read))));
    }
}
