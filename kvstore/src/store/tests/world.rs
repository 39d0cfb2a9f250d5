//! Fake engines that compute blocks, memories that remember what was written into them, and
//! peers that hold whatever is asked. A block's bytes are its name, so wrong bytes show at once.

use super::*;
use crate::messages::Prepare;
use protocol::block::{ContentDigest, SignedDigest};
pub(crate) use protocol::event::Holder;
use protocol::hash::{RoutingKey, Token};
use protocol::id::{NodeId, TenantId};
use protocol::op::{Copied, EngineOp, FetchOp, Fetched, Grant, OpId, ReadId, Readable};
use protocol::plan::Source;
use protocol::prompt::{RangeClaim, Refusal};
use protocol::time::Span;

pub(crate) use super::disk::*;
pub(crate) use super::parts::*;

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) now: Time,
    pub(crate) key: RoutingKey,
    pub(crate) storage: StorageId,
    pub(crate) size: usize,
    pub(crate) engines: BTreeMap<EngineId, Memory>,
    pub(crate) dram: Memory,
    pub(crate) disk: FakeDisk,
    pub(crate) seqs: BTreeMap<LeaseId, Seq>,
    pub(crate) engine_ops: Vec<(EngineId, EngineOp)>,
    pub(crate) fetches: BTreeMap<OpId, (FetchOp, Vec<bool>)>,
    pub(crate) cancelled: Vec<OpId>,
    pub(crate) index: BTreeSet<(Holder, PrefixHash)>,
    pub(crate) reads: BTreeMap<ReadId, Vec<Readable>>,
    /// All that came out.
    pub(crate) log: Vec<Out>,
    /// Prepared and not yet answered.
    asked: BTreeMap<LeaseId, Seq>,
    peer: Keypair,
    last: u64,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let (routing, storage) = namespaces(setup.block_tokens);
        let key = RoutingKey::derive(&routing, &[3; 32]);
        let spec = |engine| EngineSpec {
            engine: EngineId(engine),
            kind: "fake".into(),
            model: "m".into(),
            routing: routing.clone(),
            storage: storage.clone(),
            slots: setup.slots,
            context: 4096,
        };
        let config = Config {
            keypair: Keypair::from_seed(&[7; 32]),
            incarnation: Incarnation { counter: 1, nonce: 9 },
            engines: (0..setup.engines).map(spec).collect(),
            dram_slots: setup.dram,
            dram_slot_bytes: BLOCK_BYTES,
            nvme_slots: setup.nvme,
            decode_batch: setup.batch,
            limits: setup.limits,
            buggify: setup.buggify,
        };
        let mut world = Self {
            store: Store::new(config).unwrap(),
            now: Time::ZERO + Span::secs(1),
            key,
            storage: storage.id(),
            size: setup.block_tokens as usize,
            engines: (0..setup.engines).map(|e| (EngineId(e), Memory::default())).collect(),
            dram: Memory::default(),
            disk: FakeDisk::new(setup.nvme),
            seqs: BTreeMap::new(),
            engine_ops: Vec::new(),
            fetches: BTreeMap::new(),
            cancelled: Vec::new(),
            index: BTreeSet::new(),
            reads: BTreeMap::new(),
            log: Vec::new(),
            asked: BTreeMap::new(),
            peer: Keypair::from_seed(&[8; 32]),
            last: 0,
        };
        if setup.nvme > 0 {
            world.tell_found();
        }
        world
    }

    pub(crate) fn peer(&self) -> NodeId {
        self.peer.node()
    }

    /// A peer's digest of a block, as every block's bytes are.
    pub(crate) fn signed(&self, key: BlockKey) -> SignedDigest {
        let digest = ContentDigest::of(&key.prefix.0.to_le_bytes());
        SignedDigest::sign(&self.peer, Incarnation { counter: 1, nonce: 1 }, key, digest)
    }

    pub(crate) fn keys(&self, tokens: &[Token]) -> Vec<BlockKey> {
        let names = self.key.chain(&[], tokens);
        let last =
            names.chunks_exact(self.size / GRANULE).map(|granules| *granules.last().unwrap());
        last.map(|prefix| BlockKey { prefix, storage: self.storage }).collect()
    }

    /// Gives one input; keeps what comes out and checks everything.
    pub(crate) fn give(&mut self, input: In) -> Vec<Out> {
        let mut out = Vec::new();
        self.store.handle(self.now, input, &mut out);
        self.take(&out);
        out
    }

    pub(crate) fn advance(&mut self, span: Span) {
        self.now += span;
        let mut out = Vec::new();
        self.store.tick(self.now, &mut out);
        self.take(&out);
        assert!(self.store.deadline().is_none_or(|deadline| deadline > self.now));
    }

    fn take(&mut self, outs: &[Out]) {
        self.log.extend_from_slice(outs);
        for out in outs {
            match out.clone() {
                Out::Granted(grant) => self.granted(grant),
                Out::Refused(lease, _) => {
                    self.asked.remove(&lease).expect("a refusal nobody waits for");
                }
                Out::Engine(engine, op) => self.engine_op(engine, op),
                Out::Fetch(op) => {
                    op.blocks.iter().for_each(|(_, slot)| self.dram.write(*slot, None));
                    let decided = vec![false; op.blocks.len()];
                    assert!(self.fetches.insert(op.op, (op, decided)).is_none());
                }
                Out::Disk(op) => self.disk_op(op),
                Out::CancelFetch(op) => self.cancelled.push(op),
                Out::Event(event) => self.event(event),
                Out::ReadGranted { read, blocks } => self.read_granted(read, blocks),
            }
        }
        let waits = |lease| self.store.flights.contains(lease);
        assert!(self.asked.keys().all(waits), "a request was not answered");
        self.store.audit();
        let held = self.store.held().map(|event| match event {
            BlockEvent::Stored { prefix, holder, .. } => (holder, prefix),
            other => panic!("{other:?}"),
        });
        assert_eq!(self.index, held.collect(), "the index is not the truth");
        self.check_disk();
    }

    fn event(&mut self, event: BlockEvent) {
        match event {
            BlockEvent::Stored { prefix, holder, tokens, storage } => {
                assert_eq!((storage, tokens as usize % self.size), (self.storage, 0));
                assert!(self.index.insert((holder, prefix)), "stored twice");
            }
            BlockEvent::Removed { prefix, holder, .. } => {
                assert!(self.index.remove(&(holder, prefix)), "removed twice");
            }
            BlockEvent::Cleared { holder } => self.index.retain(|(h, _)| *h != holder),
        }
    }

    fn granted(&mut self, grant: Grant) {
        let mut seq = self.asked.remove(&grant.lease).expect("a grant nobody waits for");
        let keys = self.keys(&seq.tokens);
        let memory = self.engines.get_mut(&seq.engine).unwrap();
        seq.blocks = vec![Blk::Todo; grant.slots.len()];
        for (index, slot) in grant.slots.iter().enumerate() {
            if index < grant.ready as usize {
                seq.blocks[index] = Blk::Filled;
                assert_eq!(memory.read(*slot), Some(keys[index].prefix), "wrong bytes are ready");
            } else {
                memory.write(*slot, None);
            }
        }
        assert!((grant.ready as usize * self.size) < seq.tokens.len(), "nothing left to compute");
        for (next, arriving) in (grant.ready..).zip(&grant.arriving) {
            assert_eq!(arriving.index, next, "a gap in the run");
            assert!(((next + 1) as usize * self.size) < seq.tokens.len());
            seq.blocks[next as usize] = Blk::Arriving;
        }
        seq.slots = grant.slots;
        self.seqs.insert(grant.lease, seq);
    }

    fn engine_op(&mut self, engine: EngineId, op: EngineOp) {
        match &op {
            EngineOp::Export { .. } => self.engine_ops.push((engine, op)),
            EngineOp::Import { lease, index, to, from, .. } => {
                let seq = self.seqs.get(lease).expect("an import for an unknown sequence");
                assert!(seq.submitted, "an operation before its sequence");
                assert_eq!(seq.slots[*index as usize], *to);
                self.dram.name(*from);
                self.engine_ops.push((engine, op));
            }
            EngineOp::Missed { lease, index } => {
                let seq = self.seqs.get_mut(lease).expect("a miss for an unknown sequence");
                assert!(seq.submitted, "an operation before its sequence");
                let block = &mut seq.blocks[*index as usize];
                if *block == Blk::Arriving {
                    *block = Blk::Todo;
                }
            }
            EngineOp::Grant { lease, slots } => {
                let seq = self.seqs.get_mut(lease).expect("a grant for an unknown sequence");
                seq.empty_grants += u32::from(slots.is_empty());
                for slot in slots {
                    self.engines.get_mut(&engine).unwrap().write(*slot, None);
                    seq.slots.push(*slot);
                    seq.blocks.push(Blk::Todo);
                }
            }
            EngineOp::Abort { .. } => panic!("the store aborts nothing"),
        }
    }

    fn read_granted(&mut self, read: ReadId, blocks: Vec<Readable>) {
        for block in &blocks {
            let Some((slot, signed)) = &block.place else {
                continue;
            };
            let content = self.dram.read(*slot).expect("a readable block without bytes");
            assert_eq!(content, block.key.prefix, "wrong bytes are readable");
            assert!(signed.covers(&block.key, &content.0.to_le_bytes()));
        }
        self.reads.insert(read, blocks);
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn ask(&mut self, tokens: &[Token], max_tokens: u32) -> Prepare {
        Prepare {
            lease: LeaseId(self.id()),
            engine: EngineId(0),
            tenant: TenantId::local(),
            session: None,
            key: self.key.clone(),
            prefix: self.key.chain(&[], tokens).into(),
            prompt_tokens: tokens.len() as u32,
            max_tokens,
            sources: Vec::new(),
            claims: Vec::<RangeClaim>::new(),
            priority: 0,
        }
    }

    /// A source of the first `tokens` tokens.
    pub(crate) fn source(&self, tokens: usize) -> Source {
        let (end, deadline) = (tokens as u32, Span::secs(1));
        Source { node: self.peer(), start: 0, end, deadline }
    }

    /// Prepares; the lease when granted.
    pub(crate) fn prepare(&mut self, tokens: &[Token], prepare: Prepare) -> Result<Grant, Refusal> {
        self.try_prepare(tokens, prepare).expect("it waits for another's prefill")
    }

    /// Prepares; `None` when the request waits for another's prefill.
    pub(crate) fn try_prepare(
        &mut self,
        tokens: &[Token],
        prepare: Prepare,
    ) -> Option<Result<Grant, Refusal>> {
        let seq = Seq {
            engine: prepare.engine,
            tokens: tokens.to_vec(),
            most: tokens.len() + prepare.max_tokens as usize,
            slots: Vec::new(),
            blocks: Vec::new(),
            submitted: false,
            empty_grants: 0,
        };
        self.asked.insert(prepare.lease, seq);
        let answers = self.give(In::Prepare(Box::new(prepare))).into_iter();
        let mut answers = answers.filter_map(|out| match out {
            Out::Granted(grant) => Some(Ok(grant)),
            Out::Refused(_, refusal) => Some(Err(refusal)),
            _ => None,
        });
        let answer = answers.next();
        assert!(answers.next().is_none(), "answered twice");
        answer
    }

    pub(crate) fn submit(&mut self, lease: LeaseId) {
        if let Some(seq) = self.seqs.get_mut(&lease) {
            seq.submitted = true;
            self.give(In::Submitted(lease));
        }
    }

    /// The next block that a sequence could compute: not filled, and not waited for unless `late`.
    fn next_block(&self, lease: LeaseId, late: bool) -> Option<usize> {
        let seq = self.seqs.get(&lease).filter(|seq| seq.submitted)?;
        let next = seq.blocks.iter().position(|block| *block != Blk::Filled)?;
        let waits = seq.blocks[next] == Blk::Arriving && !late;
        (!waits && (next + 1) * self.size <= seq.most).then_some(next)
    }

    /// Computes one block and tells of it; false when there is none to compute.
    pub(crate) fn compute(&mut self, lease: LeaseId, late: bool) -> bool {
        let Some(index) = self.next_block(lease, late) else {
            return false;
        };
        let end = (index + 1) * self.size;
        let seq = self.seqs.get_mut(&lease).unwrap();
        while seq.tokens.len() < end {
            seq.tokens.push(Token(1_000_000 + lease.0 as u32 * 1000 + seq.tokens.len() as u32));
        }
        let tokens = seq.tokens[..end].to_vec();
        let (engine, slot) = (seq.engine, seq.slots[index]);
        seq.blocks[index] = Blk::Filled;
        let name = self.keys(&tokens)[index].prefix;
        self.engines.get_mut(&engine).unwrap().write(slot, Some(name));
        let tokens = tokens[index * self.size..].to_vec();
        self.event_of(engine, EngineEvent::Sealed { lease, index: index as u32, tokens });
        true
    }

    pub(crate) fn event_of(&mut self, engine: EngineId, event: EngineEvent) -> Vec<Out> {
        self.give(In::Engine(engine, event))
    }

    /// Performs one pending engine operation; `fine` false fails a copy to DRAM, and finds that the
    /// bytes of a copy from DRAM have changed.
    pub(crate) fn perform(&mut self, pick: usize, fine: bool) {
        if self.engine_ops.is_empty() {
            return;
        }
        let (engine, op) = self.engine_ops.remove(pick % self.engine_ops.len());
        let memory = self.engines.get_mut(&engine).unwrap();
        let answer = match op {
            EngineOp::Export { op, from, to } => {
                let content = memory.read(from).expect("an export without bytes");
                self.dram.write(to, fine.then_some(content));
                let digest = fine.then(|| ContentDigest::of(&content.0.to_le_bytes()));
                EngineEvent::Exported { op, digest }
            }
            EngineOp::Import { op, lease, index, to, from, digest } => {
                let content = self.dram.read(from).expect("an import without bytes");
                assert_eq!(digest, ContentDigest::of(&content.0.to_le_bytes()));
                let block = self.seqs.get_mut(&lease).map(|seq| {
                    let name = self.key.chain(&[], &seq.tokens);
                    let granules = self.size / GRANULE;
                    let want = name[(index as usize + 1) * granules - 1];
                    assert_eq!(content, want, "wrong bytes are imported");
                    &mut seq.blocks[index as usize]
                });
                let copied = match block {
                    Some(block) if *block == Blk::Arriving && fine => {
                        *block = Blk::Filled;
                        memory.write(to, Some(content));
                        Copied::Used
                    }
                    Some(block) if *block == Blk::Arriving => {
                        *block = Blk::Todo;
                        Copied::Corrupt
                    }
                    _ => Copied::Unused,
                };
                EngineEvent::Imported { op, copied }
            }
            other => panic!("{other:?} wants no answer"),
        };
        self.event_of(engine, answer);
    }

    pub(crate) fn perform_all(&mut self) {
        while !self.engine_ops.is_empty() || !self.disk.pending.is_empty() {
            self.perform(0, true);
            self.perform_disk(0, 0);
        }
    }

    /// Decides one block of a fetch.
    pub(crate) fn decide(&mut self, op: OpId, index: usize, kind: u8) {
        let Some((fetch, decided)) = self.fetches.get_mut(&op) else {
            return;
        };
        if std::mem::replace(&mut decided[index], true) {
            return;
        }
        let (key, slot) = fetch.blocks[index];
        let result = match kind % 4 {
            0 => {
                self.dram.write(slot, Some(key.prefix));
                Fetched::Verified(Box::new(self.signed(key)))
            }
            1 => Fetched::Absent,
            2 => Fetched::Corrupt,
            _ => Fetched::Failed,
        };
        self.give(In::Fetched { op, index, result });
    }

    pub(crate) fn end_fetch(&mut self, op: OpId) {
        if self.fetches.remove(&op).is_some() {
            self.give(In::FetchEnded { op });
        }
    }

    /// The guard is dropped; the sequence is gone from its engine.
    pub(crate) fn release(&mut self, lease: LeaseId) -> Option<Vec<Token>> {
        let seq = self.seqs.remove(&lease).or_else(|| self.asked.remove(&lease))?;
        self.give(In::Released(lease));
        Some(seq.tokens)
    }

    pub(crate) fn die(&mut self, engine: EngineId) {
        self.seqs.retain(|_, seq| seq.engine != engine);
        self.engine_ops.retain(|(e, _)| *e != engine);
        self.event_of(engine, EngineEvent::Died("test".into()));
    }

    /// Lends and, at once, checks blocks of a prompt.
    pub(crate) fn read(&mut self, keys: Vec<BlockKey>, within: Span) -> ReadId {
        let read = ReadId(self.id());
        let reader = self.peer();
        self.give(In::Read { read, reader, keys, within });
        read
    }

    /// Runs a prompt to its end: everything arrives, every block is computed, all is let go.
    pub(crate) fn serve(&mut self, tokens: &[Token], max_tokens: u32) -> Vec<Token> {
        let prepare = self.ask(tokens, max_tokens);
        let grant = self.prepare(tokens, prepare).unwrap();
        self.finish(grant.lease)
    }

    pub(crate) fn finish(&mut self, lease: LeaseId) -> Vec<Token> {
        self.submit(lease);
        self.perform_all();
        while self.compute(lease, true) {}
        let tokens = self.release(lease).unwrap();
        self.perform_all();
        tokens
    }

    /// Ends all that runs.
    pub(crate) fn settle(&mut self) {
        for lease in self.asked.keys().chain(self.seqs.keys()).copied().collect::<Vec<_>>() {
            self.release(lease);
        }
        for op in self.fetches.keys().copied().collect::<Vec<_>>() {
            self.end_fetch(op);
        }
        self.perform_all();
        self.advance(Span::secs(60));
        self.store.audit_idle();
        self.check_disk_holds_no_more();
    }

    pub(crate) fn is_known(&self, lease: LeaseId) -> bool {
        self.seqs.contains_key(&lease) || self.asked.contains_key(&lease)
    }

    /// Those who wait for another's prefill.
    pub(crate) fn waiting(&self) -> Vec<LeaseId> {
        self.asked.keys().copied().collect()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.store.counters
    }

    /// Loses the engine's pool; DRAM is what is left.
    pub(crate) fn lose_engine(&mut self) {
        self.die(EngineId(0));
        self.give(In::EngineUp(EngineId(0)));
    }

    pub(crate) fn run(&self, tier: Name, tokens: &[Token]) -> usize {
        self.store.longest_run(tier, &self.keys(tokens))
    }
}
