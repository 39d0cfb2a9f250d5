//! Real folders: restarts, limits, damage, a full and a read-only file system.

use super::*;
use kernels::Pool;
use protocol::block::{Generation, SlotRef};
use protocol::disk::{DiskEvent, DiskOp, DiskRead};
use protocol::op::OpId;
use protocol::time::Time;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: u64 = 20_000;

struct Node {
    tier: NvmeTier,
    events: Receiver<DiskEvent>,
    dram: Arc<Pool>,
    maker: Maker,
    ops: u64,
}

fn config(dir: &Path, maker: &Maker, slots: u64) -> NvmeConfig {
    let start = Instant::now();
    let clock: Clock = Arc::new(move || Time(start.elapsed().as_nanos() as u64));
    let mut config = NvmeConfig::new(dir.to_owned(), maker.storage.clone(), 0, clock);
    config.open = options(maker, slots);
    config.backoff = (Span::millis(20), Span::millis(50));
    config
}

impl Node {
    fn try_start(dir: &Path, maker: Maker, slots: u64) -> Result<Self, NvmeError> {
        let dram = Pool::new(maker.storage.block_bytes as usize, 8).unwrap();
        let (sender, events) = channel();
        let sender = Mutex::new(sender);
        let events_out: Events = Arc::new(move |event| drop(sender.lock().unwrap().send(event)));
        let tier = NvmeTier::start(config(dir, &maker, slots), Arc::clone(&dram), events_out)?;
        Ok(Self { tier, events, dram, maker, ops: 0 })
    }

    fn start(dir: &Path, slots: u64) -> Self {
        Self::try_start(dir, Maker::new(BLOCK), slots).unwrap()
    }

    fn event(&self) -> DiskEvent {
        self.events.recv_timeout(Duration::from_secs(20)).expect("an event")
    }

    fn found(&self) -> Vec<(SlotId, DiskBlock)> {
        match self.event() {
            DiskEvent::Found(blocks) => blocks,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, slot: u32, block: &DiskBlock) -> bool {
        self.ops += 1;
        let generation = self.ops as u32;
        let from = SlotRef { slot: SlotId(0), generation: Generation(generation) };
        let bytes = self.maker.bytes(block.key.prefix.0);
        self.dram.writer(0, generation).unwrap().copy_from_slice(&bytes);
        let op = OpId(self.ops);
        let block = Box::new(block.clone());
        self.tier.submit(DiskOp::Write { op, from, to: SlotId(slot), block });
        match self.event() {
            DiskEvent::Written { op: answered, durable } if answered == op => durable,
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, slot: u32, key: BlockKey) -> DiskRead {
        self.ops += 1;
        let generation = self.ops as u32;
        let to = SlotRef { slot: SlotId(1), generation: Generation(generation) };
        let op = OpId(self.ops);
        let deadline = Time(u64::MAX);
        self.tier.submit(DiskOp::Read { op, key, from: SlotId(slot), to, deadline });
        match self.event() {
            DiskEvent::Read { op: answered, result } if answered == op => {
                if matches!(result, DiskRead::Verified(_)) {
                    let slot = self.dram.reader(1, generation).unwrap();
                    assert_eq!(*slot, *self.maker.bytes(key.prefix.0), "wrong bytes served");
                }
                result
            }
            other => panic!("{other:?}"),
        }
    }
}

fn verified(result: &DiskRead) -> bool {
    matches!(result, DiskRead::Verified(_))
}

fn data_on_disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir.join("nvme/extents")).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_restart_is_warm_and_a_smaller_limit_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), 6);
    assert_eq!(node.found(), []);
    let blocks: Vec<_> = (0..6).map(|n| node.maker.block(n, None)).collect();
    for (slot, block) in blocks.iter().enumerate() {
        assert!(node.write(slot as u32, block));
    }
    node.tier.submit(DiskOp::Forget { slot: SlotId(4), key: blocks[4].key });
    let replaced = node.maker.block(44, None);
    assert!(node.write(4, &replaced));
    assert!(verified(&node.read(4, replaced.key)));
    assert_eq!(node.read(4, blocks[4].key), DiskRead::Corrupt);
    let status = node.tier.status();
    assert_eq!((status.state, status.blocks, status.slots), (NvmeState::Serving, 6, 6));
    assert!(status.data_bytes <= status.limit && data_on_disk(dir.path()) <= status.limit);
    drop(node);
    let mut node = Node::start(dir.path(), 6);
    assert_eq!(node.found().len(), 6);
    assert!(verified(&node.read(4, replaced.key)) && verified(&node.read(0, blocks[0].key)));
    drop(node);
    let mut node = Node::start(dir.path(), 3);
    let kept = node.found();
    assert_eq!(kept.len(), 3);
    assert!(data_on_disk(dir.path()) <= node.tier.status().limit);
    for (slot, block) in kept {
        assert!(verified(&node.read(slot.0, block.key)));
    }
}

#[test]
fn a_folder_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Node::start(dir.path(), 2);
    let second = Node::try_start(dir.path(), Maker::new(BLOCK), 2).map(|_| ()).unwrap_err();
    assert!(matches!(&second, NvmeError::InUse(_)), "{second}");
    assert!(second.to_string().contains("in use by another dynamo-node"));
}

#[test]
fn another_dtype_finds_nothing_and_a_later_release_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), 3);
    let block = node.maker.block(1, None);
    assert!(node.found().is_empty() && node.write(0, &block));
    drop(node);
    let version = dir.path().join("nvme/version");
    let before = std::fs::read_to_string(&version).unwrap();
    for found in ["7", "999", "2-beta"] {
        std::fs::write(&version, format!("{found}\n")).unwrap();
        let refused = Node::try_start(dir.path(), Maker::new(BLOCK), 3).map(|_| ()).unwrap_err();
        assert_eq!(refused, NvmeError::Newer { found: found.into(), known: 1 });
    }
    // A crash may leave it empty.
    std::fs::write(&version, "").unwrap();
    drop(Node::start(dir.path(), 3));
    assert_eq!(std::fs::read_to_string(&version).unwrap(), before);
    let mut node = Node::start(dir.path(), 3);
    assert_eq!(node.found().len(), 1);
    assert!(verified(&node.read(0, block.key)));
    drop(node);
    let mut other = Maker::new(BLOCK);
    other.storage.kv_dtype = "bf16".into();
    let mut node = Node::try_start(dir.path(), other, 3).unwrap();
    assert_eq!(node.found(), []);
    assert!(node.tier.status().report.fresh.unwrap().contains("kv_dtype"));
    let block = node.maker.block(1, None);
    assert!(node.write(0, &block) && verified(&node.read(0, block.key)));
}

#[test]
fn a_damaged_index_begins_anew_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path(), 3);
    let block = node.maker.block(1, None);
    assert!(node.found().is_empty() && node.write(0, &block));
    drop(node);
    for damage in ["MANIFEST", "CURRENT"] {
        for entry in std::fs::read_dir(dir.path().join("nvme/index")).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with(damage) {
                std::fs::write(path, b"garbage garbage garbage garbage\n").unwrap();
            }
        }
        let mut node = Node::start(dir.path(), 3);
        assert_eq!(node.found(), [], "{damage}");
        let report = node.tier.status().report;
        assert!(report.fresh.clone().unwrap().contains("damaged"), "{damage}: {report:?}");
        let block = node.maker.block(1, None);
        assert!(node.write(0, &block) && verified(&node.read(0, block.key)));
    }
}

/// Runs a test of this file again in a mount namespace of its own, after `mount` has prepared the
/// folder `$DIR`. True when it ran, false inside; prints why it could not.
fn in_namespace(name: &str, mount: &str) -> bool {
    if std::env::var_os("DYNAMO_TEST_MOUNTED").is_some() {
        return false;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "set -e; mount --make-rprivate /; {mount}; exec \"$BIN\" --exact nvme::tests::real::{name} --nocapture"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("DIR", dir.path())
        .env("BIN", std::env::current_exe().unwrap())
        .env("DYNAMO_TEST_MOUNTED", dir.path())
        .output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            // What the system does not allow ends before the test begins.
            if !output.status.success() && !text.contains("running 1 test") {
                println!("SKIPPED: no mount namespace here: {}", text.trim());
            } else {
                assert!(output.status.success() && text.contains("1 passed"), "{text}");
            }
        }
        Err(error) => println!("SKIPPED: unshare cannot be run: {error}"),
    }
    true
}

fn mounted() -> std::path::PathBuf {
    std::env::var_os("DYNAMO_TEST_MOUNTED").unwrap().into()
}

#[test]
fn a_full_file_system_takes_what_fits() {
    if in_namespace(
        "a_full_file_system_takes_what_fits",
        "mount -t tmpfs -o size=16m none \"$DIR\"",
    ) {
        return;
    }
    let dir = mounted();
    let mut maker = Maker::new(1 << 20);
    maker.storage.layout = "large".into();
    let mut node = Node::try_start(&dir, maker, 64).unwrap();
    assert_eq!(node.found(), []);
    let mut stored = Vec::new();
    for slot in 0..24 {
        let block = node.maker.block(u128::from(slot) + 1, None);
        if node.write(slot, &block) {
            stored.push((slot, block));
        }
    }
    assert!((8..16).contains(&stored.len()), "{} of 1 MiB in 16 MiB", stored.len());
    for (slot, block) in &stored {
        assert!(verified(&node.read(*slot, block.key)));
    }
    assert_eq!(node.tier.status().state, NvmeState::Serving);
    drop(node);
    let mut maker = Maker::new(1 << 20);
    maker.storage.layout = "large".into();
    let mut node = Node::try_start(&dir, maker, 64).unwrap();
    assert_eq!(node.found().len(), stored.len());
    assert!(verified(&node.read(stored[0].0, stored[0].1.key)));
}

#[test]
fn a_read_only_file_system_is_quarantined_and_comes_back() {
    let mount = "mkdir \"$DIR/nvme\"; mount --bind \"$DIR/nvme\" \"$DIR/nvme\"; \
                 mount -o remount,ro,bind \"$DIR/nvme\"";
    if in_namespace("a_read_only_file_system_is_quarantined_and_comes_back", mount) {
        return;
    }
    let dir = mounted();
    let mut node = Node::start(&dir, 3);
    assert!(
        matches!(node.event(), DiskEvent::Quarantined { reason } if reason.contains("read-only"))
    );
    assert!(matches!(node.tier.status().state, NvmeState::Quarantined(_)));
    let block = node.maker.block(1, None);
    assert!(!node.write(0, &block), "the node serves on without it");
    assert_eq!(node.read(0, block.key), DiskRead::Failed);
    let target = dir.join("nvme");
    let done = Command::new("mount").args(["-o", "remount,rw,bind"]).arg(&target).status();
    assert!(done.unwrap().success());
    assert_eq!(node.found(), []);
    assert!(node.write(0, &block) && verified(&node.read(0, block.key)));
}
