//! Tests of the tier on simulated and on real disks.

use super::sim::{DiskFaults, IndexFaults, Random, SimDisk, SimIndex};
use super::*;
use protocol::block::{
    BlockClass, BlockKey, Claim, ContentDigest, SignedDigest, SlotId, StorageNamespace,
};
use protocol::disk::DiskBlock;
use protocol::hash::PrefixHash;
use protocol::id::{Incarnation, TenantId};
use protocol::sign::Keypair;
use protocol::time::Span;
use protocol::trust::UnixTime;

mod crashes;
mod faults;
mod random;
mod real;
mod recovery;
mod world;

pub(super) const NOW: UnixTime = UnixTime(1_800_000_000);

pub(super) fn storage(block_bytes: u64) -> StorageNamespace {
    StorageNamespace {
        block_tokens: 16,
        kv_dtype: "f32".into(),
        layout: "test-1".into(),
        block_bytes,
        parts: vec![],
        groups: vec![],
    }
}

/// Makes blocks whose bytes follow from their names, so that wrong bytes show.
pub(super) struct Maker {
    keys: Keypair,
    pub(super) storage: StorageNamespace,
}

impl Maker {
    pub(super) fn new(block_bytes: u64) -> Self {
        Self { keys: Keypair::from_seed(&[7; 32]), storage: storage(block_bytes) }
    }

    pub(super) fn key(&self, name: u128) -> BlockKey {
        BlockKey { prefix: PrefixHash(name), storage: self.storage.id() }
    }

    pub(super) fn bytes(&self, name: u128) -> Vec<u8> {
        let mut bytes = vec![0; self.storage.block_bytes as usize];
        blake3::Hasher::new().update(&name.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    pub(super) fn block(&self, name: u128, parent: Option<&DiskBlock>) -> DiskBlock {
        let key = self.key(name);
        let digest = ContentDigest::of(&self.bytes(name));
        let life = Incarnation { counter: 1, nonce: 2 };
        DiskBlock {
            key,
            parent: parent.map(|parent| parent.key),
            tokens: parent.map_or(0, |parent| parent.tokens) + 16,
            signed: SignedDigest::sign(&self.keys, life, key, digest),
            claims: vec![claim(None, None)],
        }
    }
}

pub(super) fn claim(ttl: Option<Span>, max_age: Option<Span>) -> Claim {
    let class = BlockClass::System;
    Claim { session: None, tenant: TenantId::local(), class, priority: 3, ttl, max_age }
}

type Sim = Nvme<SimDisk, SimIndex>;

fn open_sim(
    disk: &SimDisk,
    index: &SimIndex,
    options: &OpenOptions,
) -> Result<Opened<SimDisk, SimIndex>, NvmeError> {
    Nvme::open(disk.clone(), index.clone(), options, NOW)
}

fn sim() -> (SimDisk, SimIndex) {
    let disk = SimDisk::new(1, 512, DiskFaults::default());
    (disk, SimIndex::new(2, IndexFaults::default()))
}

/// Options for so many slots.
pub(super) fn options(maker: &Maker, slots: u64) -> OpenOptions {
    let stride = maker.storage.block_bytes.next_multiple_of(SECTOR);
    OpenOptions {
        extent_bytes: stride * 2,
        ..OpenOptions::new(maker.storage.clone(), slots * stride + SECTOR)
    }
}

fn put<D: Disk, I: Index>(
    nvme: &Nvme<D, I>,
    maker: &Maker,
    slot: u32,
    block: &DiskBlock,
) -> Result<(), WriteError> {
    let bytes = maker.bytes(block.key.prefix.0);
    let job = WriteJob { slot: SlotId(slot), block, bytes: &bytes };
    nvme.write(&[job], NOW).remove(0)
}

fn get<D: Disk, I: Index>(
    nvme: &Nvme<D, I>,
    slot: u32,
    key: &BlockKey,
) -> Result<Vec<u8>, ReadError> {
    let layout = nvme.layout();
    let mut bytes = vec![0; layout.stride as usize];
    let signed = nvme.read(SlotId(slot), key, &mut bytes)?;
    bytes.truncate(layout.block_bytes as usize);
    assert!(signed.covers(key, &bytes), "a read that says verified is verified");
    Ok(bytes)
}
