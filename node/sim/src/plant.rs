//! Planted bugs: what a wrong machine or shell would do, done at the world's seams. They prove that
//! the checkers can fail.

use crate::dice::Dice;
use crate::mail::{Event, Mail};
use crate::scenario::Scenario;
use crate::world::World;
use kvstore::{In, Out};
use protocol::block::Generation;
use protocol::disk::DiskBlock;
use protocol::event::{BlockEvent, Holder, INDEX_GRANULE, MemberState};
use protocol::hash::Token;
use protocol::id::EngineId;
use protocol::prompt::StreamItem;
use protocol::state::{Record, RecordId, StateError};
use protocol::time::Span;
use protocol::wire::state::StateFrame;
use router::admission;
use std::collections::BTreeMap;
use std::fmt;

/// A bug that can be planted. Each names the checkers of which one must find it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plant {
    /// A slot of one sequence is given to another.
    SlotTwice,
    /// A slot is given again in its former generation.
    OldGeneration,
    /// A lease is never released.
    NeverRelease,
    /// Removals of blocks are not announced.
    SilentRemoval,
    /// A node gives up a member that lives.
    FalseDeath,
    /// A pinned block is evicted.
    EvictPinned,
    /// The end of an answer is lost.
    DropFinished,
    /// An answer ends twice.
    AnswerTwice,
    /// A token is changed on its way to the client.
    WrongToken,
    /// A request's cached tokens are counted twice.
    Miscount,
    /// Fetched blocks are used without a look at their digest, then or later.
    SkipDigest,
    /// Blocks are copied from DRAM into an engine without a look at their digest.
    TrustDram,
    /// A copy lands in a slot that belongs to somebody else by now.
    StaleWrite,
    /// The disk reports blocks as durable that it never wrote.
    AckUnwritten,
    /// The disk tier leaks room.
    DiskLeak,
    /// A restarted node goes on under its former incarnation.
    KeepIncarnation,
    /// The queue overlooks a request for a long time.
    Starve,
    /// A node hears nothing after a partition has healed.
    Deaf,
    /// A disk reports replicated records as durable that it never wrote.
    AckRecord,
    /// An owner takes a deletion for a later write of what is deleted.
    ReviveRecord,
    /// A byte of a replicated record is changed before it is told.
    WrongRecord,
    /// A node that is to delete a record says that there is none.
    DenyRecord,
    /// A node whose peers are silent says that there is no such record.
    GuessAbsent,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::SlotTwice,
        Self::OldGeneration,
        Self::NeverRelease,
        Self::SilentRemoval,
        Self::FalseDeath,
        Self::EvictPinned,
        Self::DropFinished,
        Self::AnswerTwice,
        Self::WrongToken,
        Self::Miscount,
        Self::SkipDigest,
        Self::TrustDram,
        Self::StaleWrite,
        Self::AckUnwritten,
        Self::DiskLeak,
        Self::KeepIncarnation,
        Self::Starve,
        Self::Deaf,
        Self::AckRecord,
        Self::ReviveRecord,
        Self::WrongRecord,
        Self::DenyRecord,
        Self::GuessAbsent,
    ];

    /// The checkers of which one must find it.
    pub fn found_by(self) -> &'static [&'static str] {
        match self {
            Self::SlotTwice | Self::OldGeneration => &["slots"],
            Self::NeverRelease => &["leases", "liveness"],
            Self::SilentRemoval => &["index"],
            Self::FalseDeath => &["members"],
            Self::EvictPinned => &["pins"],
            Self::DropFinished => &["liveness", "answers"],
            Self::AnswerTwice | Self::WrongToken => &["answers"],
            Self::Miscount => &["accounts"],
            Self::SkipDigest => &["bytes", "answers"],
            Self::TrustDram => &["bytes", "answers"],
            Self::StaleWrite => &["writes"],
            Self::AckUnwritten | Self::DiskLeak => &["disk"],
            Self::KeepIncarnation => &["index", "liveness"],
            Self::Starve => &["queue"],
            Self::Deaf => &["liveness", "index", "records"],
            Self::AckRecord | Self::ReviveRecord | Self::WrongRecord => &["records"],
            Self::DenyRecord | Self::GuessAbsent => &["records"],
        }
    }

    /// A scenario in which it can show, small enough for a test.
    pub fn scenario(self) -> Scenario {
        let mut scenario =
            Scenario { nodes: 3, seconds: 8, heal_seconds: 20, ..Scenario::default() };
        scenario.cluster.speedup = 4.0;
        scenario.workload.sessions = 6;
        scenario.workload.system_tokens = 300;
        match self {
            // Pools so small that blocks move and queues form.
            Self::SilentRemoval | Self::StaleWrite | Self::TrustDram => {
                scenario.cluster.engine_slots = 48;
                scenario.cluster.context = 3000;
                scenario.cluster.dram_slots = 64;
                scenario.cluster.nvme_slots = 0;
                if self == Self::TrustDram {
                    scenario.faults.dram_flips_per_minute = 600.0;
                }
            }
            Self::EvictPinned => scenario.workload.pins = 1.0,
            Self::AckUnwritten => scenario.faults.crashes_per_minute = 20.0,
            Self::KeepIncarnation => scenario.faults.crashes_per_minute = 20.0,
            Self::Starve => {
                scenario.nodes = 2;
                scenario.seconds = 12;
                scenario.cluster.max_batch = 2;
                scenario.cluster.starvation_ms = 300;
                scenario.cluster.speedup = 1.0;
                scenario.workload.sessions = 12;
            }
            Self::AckRecord
            | Self::ReviveRecord
            | Self::WrongRecord
            | Self::DenyRecord
            | Self::GuessAbsent => {
                if self == Self::GuessAbsent {
                    scenario.faults.crashes_per_minute = 20.0;
                }
                scenario.workload.sessions = 1;
                scenario.workload.clerks = 6;
            }
            _ => {}
        }
        scenario
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Which bug is planted, and when it strikes.
pub(crate) struct Planted {
    plant: Option<Plant>,
    dice: Dice,
    /// It was done, so often.
    done: u64,
    held: Vec<(usize, admission::Out)>,
    /// What replicated records were.
    were: BTreeMap<RecordId, Vec<u8>>,
}

impl Planted {
    pub(crate) fn new(plant: Option<Plant>, seed: u64) -> Self {
        Self {
            plant,
            dice: Dice::new(seed, "plant"),
            done: 0,
            held: Vec::new(),
            were: BTreeMap::new(),
        }
    }

    fn is(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Strikes at one in `one_in` occasions, at most `most` times.
    fn strikes(&mut self, plant: Plant, one_in: u64, most: u64) -> bool {
        let strikes = self.is(plant) && self.done < most && self.dice.below(one_in) == 0;
        self.done += u64::from(strikes);
        strikes
    }

    pub(crate) fn keeps_incarnation(&self) -> bool {
        self.is(Plant::KeepIncarnation)
    }

    pub(crate) fn is_careless(&self) -> bool {
        self.is(Plant::StaleWrite)
    }

    /// Bytes that the disk tier has lost track of.
    pub(crate) fn hidden_bytes(&mut self) -> u64 {
        match self.is(Plant::DiskLeak) {
            true => {
                self.done += 1;
                self.done * 65_536
            }
            false => 0,
        }
    }
}

impl World {
    pub(crate) fn plant_gossip(&mut self, h: usize, effect: gossip::Out) -> Vec<gossip::Out> {
        let gossip::Out::Member(view) = &effect else { return vec![effect] };
        let (node, incarnation) = (view.node, view.incarnation);
        let other = self.hosts.get(h).is_some_and(|host| host.id != node);
        let lives = view.state == MemberState::Alive && other;
        if lives && self.planted.strikes(Plant::FalseDeath, 20, 1) {
            return vec![gossip::Out::Forget { node, incarnation }, effect];
        }
        vec![effect]
    }

    pub(crate) fn plant_store_in(&mut self, _h: usize, input: In) -> Option<In> {
        let drops =
            matches!(input, In::Released(_)) && self.planted.strikes(Plant::NeverRelease, 10, 1);
        (!drops).then_some(input)
    }

    pub(crate) fn plant_store_out(&mut self, h: usize, output: Out) -> Vec<Out> {
        match output {
            Out::Event(BlockEvent::Removed { tokens, .. })
                if tokens.is_multiple_of(INDEX_GRANULE)
                    && self.planted.strikes(Plant::SilentRemoval, 3, 1000) =>
            {
                Vec::new()
            }
            Out::Granted(mut grant) => {
                let ready = grant.ready as usize;
                let other = self.watch.other_private(h, grant.lease);
                if let (Some(slot), Some(taken)) = (grant.slots.get_mut(ready), other)
                    && self.planted.strikes(Plant::SlotTwice, 4, 1)
                {
                    slot.slot = taken;
                    slot.generation = Generation(slot.generation.0 + 1000);
                } else if let Some(slot) = grant.slots.get_mut(ready).filter(|s| s.generation.0 > 1)
                    && self.planted.strikes(Plant::OldGeneration, 4, 1)
                {
                    slot.generation = Generation(slot.generation.0 - 1);
                }
                vec![Out::Granted(grant)]
            }
            output => vec![output],
        }
    }

    pub(crate) fn plant_item(&mut self, item: StreamItem) -> Vec<StreamItem> {
        match item {
            StreamItem::Finished(finish) => {
                if self.planted.strikes(Plant::DropFinished, 10, 1) {
                    return Vec::new();
                }
                let twice = self.planted.strikes(Plant::AnswerTwice, 10, 1);
                vec![StreamItem::Finished(finish); 1 + usize::from(twice)]
            }
            StreamItem::Tokens(mut tokens) => {
                if let Some(token) = tokens.first_mut()
                    && self.planted.strikes(Plant::WrongToken, 50, 1)
                {
                    *token = Token(token.0 ^ 1);
                }
                vec![StreamItem::Tokens(tokens)]
            }
            StreamItem::Started(mut started) => {
                if self.planted.strikes(Plant::Miscount, 10, 1) {
                    started.prompt.computed += started.prompt.gpu + 1;
                }
                vec![StreamItem::Started(started)]
            }
            item @ StreamItem::Failed(_) => vec![item],
        }
    }

    pub(crate) fn plant_flips_transit(&mut self) -> bool {
        self.planted.is(Plant::SkipDigest)
    }

    pub(crate) fn plant_skips_digest(&self) -> bool {
        self.planted.is(Plant::SkipDigest)
    }

    pub(crate) fn plant_trusts_dram(&self) -> bool {
        self.planted.is(Plant::TrustDram) || self.planted.is(Plant::SkipDigest)
    }

    pub(crate) fn plant_skips_write(&mut self, _block: &DiskBlock) -> bool {
        self.planted.strikes(Plant::AckUnwritten, 4, u64::MAX)
    }

    /// A copy that lands a second time, when the slot may be somebody else's.
    pub(crate) fn plant_late_copy(
        &mut self,
        h: usize,
        engine: EngineId,
        life: u32,
        copy: &mock::Out,
    ) {
        if matches!(copy, mock::Out::Write { .. }) && self.planted.strikes(Plant::StaleWrite, 5, 20)
        {
            let after = self.planted.dice.span(Span::millis(50), Span::secs(2));
            let again = Mail::Copy(engine, life, Box::new(copy.clone()));
            self.plan_for(h, self.now + after, Event::Mail(again));
        }
    }

    pub(crate) fn plant_admission(
        &mut self,
        h: usize,
        out: Vec<admission::Out>,
    ) -> Vec<admission::Out> {
        if !self.planted.is(Plant::Starve) {
            return out;
        }
        let mut kept = Vec::new();
        for effect in out {
            let holds = matches!(effect, admission::Out::Admit(_)) && self.planted.held.is_empty();
            if holds && self.planted.strikes(Plant::Starve, 4, 1) {
                self.planted.held.push((h, effect));
            } else {
                kept.push(effect);
            }
        }
        kept
    }

    pub(crate) fn plant_in_weather(&mut self) {
        if self.planted.is(Plant::EvictPinned) {
            for h in self.up() {
                self.evict_pinned(h);
            }
        }
    }

    fn evict_pinned(&mut self, h: usize) {
        let Some(prefix) = self.watch.any_pinned(h, self.now) else { return };
        if !self.planted.strikes(Plant::EvictPinned, 20, 1) {
            return;
        }
        let storage = crate::host::spec(&self.scenario, EngineId(0)).storage.id();
        for holder in self.watch.holders(h, &prefix) {
            let tokens = if holder == Holder::Dram { 64 } else { 128 };
            let gone = BlockEvent::Removed { prefix, tokens, storage, holder };
            self.watch_store_out(h, &Out::Event(gone));
        }
    }

    pub(crate) fn plant_skips_record(&mut self) -> bool {
        self.planted.strikes(Plant::AckRecord, 3, u64::MAX)
    }

    pub(crate) fn plant_state_in(&mut self, input: state::In) -> state::In {
        if !self.planted.is(Plant::ReviveRecord) {
            return input;
        }
        match input {
            state::In::Frame { from, frame: StateFrame::Put { op, record } } => {
                let record = self.revived(record);
                state::In::Frame { from, frame: StateFrame::Put { op, record } }
            }
            input => input,
        }
    }

    fn revived(&mut self, record: Record) -> Record {
        if !record.deleted {
            self.planted.were.insert(record.id, record.value.clone());
            return record;
        }
        match self.planted.were.get(&record.id).cloned() {
            Some(value) if self.planted.strikes(Plant::ReviveRecord, 2, u64::MAX) => {
                Record { deleted: false, value, ..record }
            }
            _ => record,
        }
    }

    /// What a node answers at once, instead of taking in what it is told.
    pub(crate) fn plant_state_answer(&mut self, input: &state::In) -> Option<state::Out> {
        let state::In::Delete { call, .. } = input else { return None };
        let denies = self.planted.strikes(Plant::DenyRecord, 2, u64::MAX);
        let answer = state::Answer::Deleted(Ok(state::Deleted::Absent));
        denies.then_some(state::Out::Answer { call: *call, answer })
    }

    pub(crate) fn plant_state_out(&mut self, effect: state::Out) -> state::Out {
        let mut effect = effect;
        if let state::Out::Answer { answer: state::Answer::Got(got), .. } = &mut effect
            && *got == Err(StateError::Unavailable)
            && self.planted.strikes(Plant::GuessAbsent, 1, u64::MAX)
        {
            *got = Ok(state::Found { value: None, confirmed: false });
        }
        if let state::Out::Answer { answer: state::Answer::Got(Ok(found)), .. } = &mut effect
            && let Some(byte) = found.value.as_mut().and_then(|value| value.first_mut())
            && self.planted.strikes(Plant::WrongRecord, 10, 1)
        {
            *byte ^= 0x80;
        }
        effect
    }

    /// A node that hears nothing once the faults are over.
    pub(crate) fn is_deaf(&self, h: usize) -> bool {
        h == 0 && !self.stormy && self.planted.is(Plant::Deaf)
    }
}
