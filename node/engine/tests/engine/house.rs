//! A small block manager around an engine, and what tests ask of it.

use engine::{Embedded, EmbeddedConfig, Engine, Job, MockConfig, MockEngine, storage_namespace};
use kernels::Pool;
use model::Model;
use protocol::block::{ContentDigest, Generation, SlotId, SlotRef};
use protocol::constraint::Constraint;
use protocol::hash::Token;
use protocol::id::{EngineId, NodeId, RequestId};
use protocol::op::{Arriving, Copied, EngineEvent, EngineOp, Grant, LeaseId, OpId};
use protocol::prompt::{Finish, FinishReason, Limits, Refusal, Sampling, Started, StreamItem};
use protocol::time::Time;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, channel};

/// Far longer than anything here takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const NODE: NodeId = NodeId([7; 32]);

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

pub(crate) static TINY: LazyLock<Arc<Model>> = LazyLock::new(|| {
    Arc::new(Model::open(&fixtures().join("tiny-qwen3")).expect("the fixture opens"))
});

#[derive(Deserialize, Clone)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) output_ids: Vec<u32>,
}

impl Reference {
    pub(crate) fn prompt(&self) -> Vec<Token> {
        self.prompt_ids.iter().map(|id| Token(*id)).collect()
    }

    pub(crate) fn output(&self) -> Vec<Token> {
        self.output_ids.iter().map(|id| Token(*id)).collect()
    }
}

pub(crate) fn references(name: &str) -> Vec<Reference> {
    let path = fixtures().join("reference").join(name);
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("the reference is JSON")
}

/// An engine with its DRAM slots and the events it told.
pub(crate) struct House {
    pub(crate) engine: Option<Arc<dyn Engine>>,
    pub(crate) dram: Arc<Pool>,
    told: Arc<Told>,
    next_slot: AtomicU32,
    next_id: AtomicU64,
}

/// All events so far, but for reports of load, of which only the last is kept.
#[derive(Default)]
struct Told {
    state: Mutex<(Vec<EngineEvent>, Option<EngineEvent>)>,
    changed: Condvar,
}

impl House {
    pub(crate) fn tiny() -> Self {
        Self::start(&TINY, |config| config)
    }

    pub(crate) fn start(
        model: &Arc<Model>,
        adjust: impl Fn(EmbeddedConfig) -> EmbeddedConfig,
    ) -> Self {
        let bytes = storage_namespace(model.config()).block_bytes as usize;
        Self::with_dram(model, Pool::new(bytes, 512).expect("memory for DRAM slots"), adjust)
    }

    pub(crate) fn with_dram(
        model: &Arc<Model>,
        dram: Arc<Pool>,
        adjust: impl Fn(EmbeddedConfig) -> EmbeddedConfig,
    ) -> Self {
        let (events, reader) = channel(8);
        let config = adjust(EmbeddedConfig::new(EngineId(0), "test", Instant::now()));
        let engine = Embedded::start(Arc::clone(model), Arc::clone(&dram), config, events);
        Self::around(engine.expect("the engine starts"), dram, reader)
    }

    /// A mock engine.
    pub(crate) fn mock(
        model: &Arc<Model>,
        dram: Arc<Pool>,
        adjust: impl Fn(MockConfig) -> MockConfig,
    ) -> Self {
        let (events, reader) = channel(8);
        let config = adjust(MockConfig::new(EngineId(0), "test", Instant::now()));
        let engine = MockEngine::start(model, Arc::clone(&dram), &config, events);
        Self::around(engine.expect("the engine starts"), dram, reader)
    }

    fn around(engine: Arc<dyn Engine>, dram: Arc<Pool>, mut reader: Receiver<EngineEvent>) -> Self {
        let told = Arc::new(Told::default());
        let shared = Arc::clone(&told);
        // Ends when the engine's thread does.
        std::thread::spawn(move || {
            while let Some(event) = reader.blocking_recv() {
                let mut state = shared.state.lock().unwrap();
                match event {
                    load @ EngineEvent::Load(_) => state.1 = Some(load),
                    event => state.0.push(event),
                }
                shared.changed.notify_all();
            }
        });
        Self {
            engine: Some(engine),
            dram,
            told,
            next_slot: AtomicU32::new(0),
            next_id: AtomicU64::new(1),
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("the engine is there")
    }

    /// Slots that no test has used yet.
    pub(crate) fn slots(&self, blocks: usize) -> Vec<SlotRef> {
        let first = self.next_slot.fetch_add(blocks as u32, Ordering::Relaxed);
        (first..first + blocks as u32).map(slot).collect()
    }

    pub(crate) fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<EngineEvent> {
        self.told.state.lock().unwrap().0.clone()
    }

    /// Waits until the events satisfy `found`, and returns what it answers.
    pub(crate) fn wait<T>(&self, found: impl Fn(&[EngineEvent]) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut state = self.told.state.lock().unwrap();
        loop {
            if let Some(result) = found(&state.0) {
                return result;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain; events: {:?}", state.0);
            state = self.told.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Waits for a report of load that satisfies `found`.
    pub(crate) fn wait_load(&self, found: impl Fn(&protocol::event::EngineLoad) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.told.state.lock().unwrap();
        while !matches!(&state.1, Some(EngineEvent::Load(load)) if found(load)) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain; last load: {:?}", state.1);
            state = self.told.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Index and tokens of the blocks sealed for a lease, in the order told.
    pub(crate) fn sealed(&self, lease: LeaseId) -> Vec<(u32, Vec<Token>)> {
        let sealed = |event: EngineEvent| match event {
            EngineEvent::Sealed { lease: of, index, tokens } if of == lease => {
                Some((index, tokens))
            }
            _ => None,
        };
        self.events().into_iter().filter_map(sealed).collect()
    }

    pub(crate) fn wait_sealed(&self, lease: LeaseId, index: u32) {
        self.wait(|events| {
            events.iter().find_map(|event| match event {
                EngineEvent::Sealed { lease: of, index: block, .. } => {
                    (*of == lease && *block == index).then_some(())
                }
                _ => None,
            })
        });
    }

    /// Waits until all that the engine told so far is here: events come in order.
    pub(crate) fn settle(&self) {
        self.export(&[slot(0)]);
    }

    /// Copies engine slots to DRAM; returns the DRAM slots and digests.
    pub(crate) fn export(&self, slots: &[SlotRef]) -> Vec<(SlotRef, ContentDigest)> {
        let export = |from: &SlotRef| {
            let (op, to) = (OpId(self.id()), slot(self.id() as u32 % self.dram.slots()));
            self.engine().perform(EngineOp::Export { op, from: *from, to });
            let digest = self.wait(|events| {
                events.iter().find_map(|event| match event {
                    EngineEvent::Exported { op: of, digest } if *of == op => Some(*digest),
                    _ => None,
                })
            });
            (to, digest.expect("the copy succeeds"))
        };
        slots.iter().map(export).collect()
    }

    /// Asks for an import of what is in a DRAM slot and waits; whether it was used.
    pub(crate) fn import(&self, lease: LeaseId, index: u32, to: SlotRef, from: SlotRef) -> bool {
        let bytes = self.dram.reader(from.slot.0, from.generation.0).ok();
        let bytes = bytes.as_ref().and_then(|bytes| bytes.get(..self.block_bytes()));
        let digest = bytes.map_or(ContentDigest([0; 32]), ContentDigest::of);
        self.import_as(lease, index, to, from, digest) == Copied::Used
    }

    /// Asks for an import and waits for the answer.
    pub(crate) fn import_as(
        &self,
        lease: LeaseId,
        index: u32,
        to: SlotRef,
        from: SlotRef,
        digest: ContentDigest,
    ) -> Copied {
        let op = OpId(self.id());
        self.engine().perform(EngineOp::Import { op, lease, index, to, from, digest });
        self.wait(|events| {
            events.iter().find_map(|event| match event {
                EngineEvent::Imported { op: of, copied } if *of == op => Some(*copied),
                _ => None,
            })
        })
    }

    fn block_bytes(&self) -> usize {
        self.engine().spec().storage.block_bytes as usize
    }

    /// A job with room for its whole answer.
    pub(crate) fn ask(&self, prompt: &[Token], max_tokens: u32) -> Ask<'_> {
        let blocks = (prompt.len() + max_tokens as usize).div_ceil(16);
        Ask {
            house: self,
            prompt: prompt.to_vec(),
            resumed: 0,
            slots: self.slots(blocks),
            ready: 0,
            arriving: vec![],
            sampling: Sampling::GREEDY,
            limits: Limits { max_tokens, stop_tokens: vec![] },
            constraint: None,
            priority: 0,
            lease: LeaseId(self.id()),
            channel: 64,
        }
    }
}

pub(crate) fn slot(slot: u32) -> SlotRef {
    SlotRef { slot: SlotId(slot), generation: Generation(1) }
}

/// What to ask the engine.
pub(crate) struct Ask<'a> {
    house: &'a House,
    pub(crate) prompt: Vec<Token>,
    pub(crate) resumed: u32,
    pub(crate) slots: Vec<SlotRef>,
    pub(crate) ready: u32,
    pub(crate) arriving: Vec<Arriving>,
    pub(crate) sampling: Sampling,
    pub(crate) limits: Limits,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) priority: i32,
    pub(crate) lease: LeaseId,
    pub(crate) channel: usize,
}

/// Time far away, as a deadline.
pub(crate) const LATER: Time = Time(1_000_000_000_000);

/// Sets a flag when dropped.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Ask<'_> {
    pub(crate) fn submit(self) -> Stream {
        self.try_submit().expect("the job is taken")
    }

    pub(crate) fn try_submit(self) -> Result<Stream, Refusal> {
        let released = Arc::new(AtomicBool::new(false));
        let guard = Box::new(Guard(Arc::clone(&released)));
        self.submit_with(guard, released)
    }

    pub(crate) fn submit_with(
        self,
        guard: Box<dyn Send>,
        released: Arc<AtomicBool>,
    ) -> Result<Stream, Refusal> {
        let (sink, items) = channel(self.channel);
        let (lease, slots) = (self.lease, self.slots.clone());
        self.house.engine().submit(Job {
            request: RequestId(u128::from(lease.0)),
            grant: Grant { lease, slots: self.slots, ready: self.ready, arriving: self.arriving },
            prompt: self.prompt.into(),
            resumed: self.resumed,
            sampling: self.sampling,
            limits: self.limits,
            constraint: self.constraint,
            priority: self.priority,
            arrived: Instant::now(),
            serving_node: NODE,
            sink,
            guard,
        })?;
        Ok(Stream { items, lease, slots, released })
    }
}

/// A running job.
pub(crate) struct Stream {
    pub(crate) items: Receiver<StreamItem>,
    pub(crate) lease: LeaseId,
    pub(crate) slots: Vec<SlotRef>,
    pub(crate) released: Arc<AtomicBool>,
}

/// All that a stream said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) started: Started,
    pub(crate) tokens: Vec<Token>,
    pub(crate) finish: Finish,
}

impl Stream {
    pub(crate) fn next(&mut self) -> Option<StreamItem> {
        self.items.blocking_recv()
    }

    /// Reads to the end and checks the order of items.
    pub(crate) fn answer(&mut self) -> Answer {
        let first = self.next();
        let Some(StreamItem::Started(started)) = first else { panic!("not started: {first:?}") };
        let mut tokens = Vec::new();
        loop {
            match self.next() {
                Some(StreamItem::Tokens(more)) => tokens.extend(more),
                Some(StreamItem::Finished(finish)) => {
                    assert_eq!(self.next(), None);
                    assert_eq!(finish.prompt, started.prompt);
                    let hidden = u32::from(matches!(finish.reason, FinishReason::Stop(_)));
                    assert_eq!(finish.output_tokens, tokens.len() as u32 + hidden);
                    self.wait_released();
                    return Answer { started, tokens, finish };
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Waits until the lease is given back.
    pub(crate) fn wait_released(&self) {
        let end = Instant::now() + PATIENCE;
        while !self.released.load(Ordering::SeqCst) {
            assert!(Instant::now() < end, "the guard was not dropped");
            std::thread::yield_now();
        }
    }
}
