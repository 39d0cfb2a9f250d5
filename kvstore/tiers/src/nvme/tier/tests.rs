//! The threads, on simulated disks.

use super::super::sim::{DiskFaults, IndexFaults, SimDisk, SimIndex};
use super::super::tests::{Maker, options};
use super::super::{DiskError, FileId, Media};
use super::*;
use protocol::block::{BlockKey, Generation, SlotRef};
use protocol::op::OpId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

/// A simulated disk whose reads wait while the gate is shut.
#[derive(Clone)]
struct Gated {
    disk: SimDisk,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Gated {
    fn shut(&self, shut: bool) {
        *self.gate.0.lock().unwrap() = shut;
        self.gate.1.notify_all();
    }
}

impl super::super::Disk for Gated {
    fn reserve(&self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        self.disk.reserve(file, bytes)
    }
    fn write_at(&self, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write_at(file, offset, bytes)
    }
    fn read_at(&self, file: FileId, offset: u64, bytes: &mut [u8]) -> Result<(), DiskError> {
        let shut = self.gate.0.lock().unwrap();
        drop(self.gate.1.wait_while(shut, |shut| *shut).unwrap());
        self.disk.read_at(file, offset, bytes)
    }
    fn sync(&self, file: FileId) -> Result<(), DiskError> {
        self.disk.sync(file)
    }
    fn files(&self) -> Result<Vec<(FileId, u64)>, DiskError> {
        self.disk.files()
    }
    fn shrink(&self, file: FileId, bytes: u64) -> Result<(), DiskError> {
        self.disk.shrink(file, bytes)
    }
    fn remove(&self, file: FileId) -> Result<(), DiskError> {
        self.disk.remove(file)
    }
}

#[derive(Clone)]
struct SimMedium {
    disk: Gated,
    index: SimIndex,
}

impl Medium for SimMedium {
    type Disk = Gated;
    type Index = SimIndex;

    fn open(&self) -> Result<Media<Gated, SimIndex>, NvmeError> {
        let (disk, index) = (self.disk.clone(), self.index.clone());
        Ok(Media { disk, index, io: IoMode::Direct })
    }

    fn reset(&self) -> Result<(), NvmeError> {
        Ok(())
    }
}

struct Bench {
    tier: NvmeTier<SimMedium>,
    medium: SimMedium,
    events: Receiver<DiskEvent>,
    dram: Arc<Pool>,
    maker: Maker,
    now: Arc<AtomicU64>,
}

const BLOCK: u64 = 5000;
const FAR: Time = Time(u64::MAX);

fn start(slots: u64) -> Bench {
    let maker = Maker::new(BLOCK);
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let disk = Gated { disk: SimDisk::new(1, 512, DiskFaults::default()), gate };
    let medium = SimMedium { disk, index: SimIndex::new(2, IndexFaults::default()) };
    let now = Arc::new(AtomicU64::new(0));
    let hands = Arc::clone(&now);
    let clock: Clock = Arc::new(move || Time(hands.load(Ordering::SeqCst)));
    let mut config = NvmeConfig::new("unused".into(), maker.storage.clone(), 0, clock);
    config.open = options(&maker, slots);
    config.threads = 3;
    config.queue = 64;
    let dram = Pool::new(BLOCK as usize, 64).unwrap();
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let out: Events = Arc::new(move |event| drop(sender.lock().unwrap().send(event)));
    let tier = NvmeTier::start_on(medium.clone(), config, Arc::clone(&dram), out).unwrap();
    assert_eq!(events.recv().unwrap(), DiskEvent::Found(vec![]));
    Bench { tier, medium, events, dram, maker, now }
}

impl Bench {
    fn event(&self) -> DiskEvent {
        self.events.recv_timeout(Duration::from_secs(20)).expect("an event")
    }

    fn advance(&self, span: Span) {
        self.now.fetch_add(span.0, Ordering::SeqCst);
        self.tier.shared.alarm.notify_all();
    }

    fn submit_write(&self, n: u32) -> DiskBlock {
        let block = self.maker.block(u128::from(n), None);
        let bytes = self.maker.bytes(u128::from(n));
        self.dram.writer(n, 1).unwrap().copy_from_slice(&bytes);
        let from = SlotRef { slot: SlotId(n), generation: Generation(1) };
        let op = OpId(u64::from(n));
        self.tier.submit(DiskOp::Write { op, from, to: SlotId(n), block: Box::new(block.clone()) });
        block
    }

    fn submit_read(&self, op: u64, n: u32, key: BlockKey, generation: u32, deadline: Time) {
        let to = SlotRef { slot: SlotId(32 + n), generation: Generation(generation) };
        self.tier.submit(DiskOp::Read { op: OpId(op), key, from: SlotId(n), to, deadline });
    }

    fn write_all(&self, count: u32) -> Vec<DiskBlock> {
        let blocks: Vec<_> = (0..count).map(|n| self.submit_write(n)).collect();
        for _ in 0..count {
            assert!(matches!(self.event(), DiskEvent::Written { durable: true, .. }));
        }
        blocks
    }
}

#[test]
fn many_at_once_all_arrive_whole() {
    let bench = start(32);
    let blocks = bench.write_all(32);
    for (n, block) in blocks.iter().enumerate() {
        bench.submit_read(100 + n as u64, n as u32, block.key, 1, FAR);
    }
    for _ in 0..32 {
        let DiskEvent::Read { op, result: DiskRead::Verified(signed) } = bench.event() else {
            panic!("a read failed");
        };
        let n = op.0 as u32 - 100;
        let slot = bench.dram.reader(32 + n, 1).unwrap();
        assert!(signed.covers(&blocks[n as usize].key, &slot));
    }
    assert_eq!(bench.tier.status().counters.written, 32);
}

#[test]
fn a_late_read_is_answered_in_time_and_writes_nothing_after() {
    let bench = start(4);
    let block = bench.write_all(1).remove(0);
    bench.medium.disk.shut(true);
    bench.submit_read(9, 0, block.key, 1, Time(1_000));
    while bench.tier.shared.desk.lock().unwrap().running.is_empty() {
        std::thread::yield_now();
    }
    bench.advance(Span(2_000));
    assert_eq!(bench.event(), DiskEvent::Read { op: OpId(9), result: DiskRead::Late });
    // The slot's next life.
    bench.dram.writer(32, 2).unwrap().fill(7);
    bench.medium.disk.shut(false);
    while !bench.tier.shared.desk.lock().unwrap().running.is_empty() {
        std::thread::yield_now();
    }
    assert!(bench.dram.reader(32, 2).unwrap().iter().all(|byte| *byte == 7));
    // Later than late: answered at once.
    bench.submit_read(10, 0, block.key, 2, Time(1));
    assert_eq!(bench.event(), DiskEvent::Read { op: OpId(10), result: DiskRead::Late });
    // A read into a slot that has moved on fails and leaves it alone.
    bench.submit_read(11, 0, block.key, 1, FAR);
    assert_eq!(bench.event(), DiskEvent::Read { op: OpId(11), result: DiskRead::Failed });
}

#[test]
fn a_failing_disk_goes_and_comes_back_with_what_it_holds() {
    let bench = start(8);
    let blocks = bench.write_all(3);
    let sick = DiskFaults { write_error: 1_000_000, ..DiskFaults::default() };
    bench.medium.disk.disk.set_faults(sick);
    let mut refused = 0;
    for n in 3..8 {
        bench.submit_write(n);
    }
    let reason = loop {
        match bench.event() {
            DiskEvent::Written { durable: false, .. } => refused += 1,
            DiskEvent::Quarantined { reason } => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused, 5, "everything is answered before");
    assert!(reason.contains("in a row failed"), "{reason}");
    bench.submit_read(50, 0, blocks[0].key, 1, FAR);
    assert_eq!(bench.event(), DiskEvent::Read { op: OpId(50), result: DiskRead::Failed });
    bench.medium.disk.disk.set_faults(DiskFaults::default());
    bench.advance(Span::secs(2));
    let DiskEvent::Found(found) = bench.event() else { panic!("not found") };
    let keys: Vec<_> = found.iter().map(|(_, block)| block.key).collect();
    assert_eq!(keys, blocks.iter().map(|block| block.key).collect::<Vec<_>>());
    bench.submit_read(51, 0, blocks[0].key, 1, FAR);
    let DiskEvent::Read { result, .. } = bench.event() else { panic!("no read") };
    assert!(matches!(result, DiskRead::Verified(_)));
    assert_eq!(bench.tier.status().quarantines, 1);
}

#[test]
fn a_failed_sync_quarantines_and_drops_its_extent_alone() {
    let bench = start(8);
    let blocks = bench.write_all(4);
    bench.tier.submit(DiskOp::Forget { slot: SlotId(1), key: blocks[1].key });
    let sick = DiskFaults { sync_error: 1_000_000, ..DiskFaults::default() };
    bench.medium.disk.disk.set_faults(sick);
    bench.submit_write(1);
    assert!(matches!(bench.event(), DiskEvent::Written { durable: false, .. }));
    assert!(matches!(bench.event(), DiskEvent::Quarantined { .. }));
    bench.medium.disk.disk.set_faults(DiskFaults::default());
    bench.advance(Span::secs(2));
    let DiskEvent::Found(found) = bench.event() else { panic!("not found") };
    let slots: Vec<_> = found.iter().map(|(slot, _)| slot.0).collect();
    assert_eq!(slots, [2, 3], "extents hold two slots each");
}

#[test]
fn a_disk_that_hangs_is_given_up_and_not_used_before_it_answers() {
    let bench = start(4);
    let block = bench.write_all(1).remove(0);
    bench.medium.disk.shut(true);
    bench.submit_read(9, 0, block.key, 1, FAR);
    while bench.tier.shared.desk.lock().unwrap().running.is_empty() {
        std::thread::yield_now();
    }
    bench.advance(Span::secs(31));
    assert_eq!(bench.event(), DiskEvent::Read { op: OpId(9), result: DiskRead::Failed });
    assert!(matches!(bench.event(), DiskEvent::Quarantined { .. }));
    bench.advance(Span::secs(100));
    assert!(matches!(bench.tier.status().state, NvmeState::Quarantined(_)));
    bench.medium.disk.shut(false);
    assert!(matches!(bench.event(), DiskEvent::Found(found) if found.len() == 1));
}

#[test]
fn a_full_queue_refuses_and_removals_reach_the_index_without_writes() {
    let bench = start(8);
    let blocks = bench.write_all(2);
    bench.tier.submit(DiskOp::Forget { slot: SlotId(0), key: blocks[0].key });
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while bench.medium.index.len() > 2 {
        bench.advance(Span::millis(300));
        assert!(std::time::Instant::now() < deadline, "the record is still there");
        std::thread::yield_now();
    }
    bench.medium.disk.shut(true);
    let mut refused = 0;
    for op in 0..100 {
        bench.submit_read(1000 + op, 1, blocks[1].key, 1, FAR);
        while let Ok(event) = bench.events.try_recv() {
            let DiskEvent::Read { result, .. } = event else { panic!("{event:?}") };
            assert_eq!(result, DiskRead::Failed);
            refused += 1;
        }
    }
    assert!((33..=36).contains(&refused), "64 wait, up to 3 run: {refused} refused");
    bench.medium.disk.shut(false);
}
