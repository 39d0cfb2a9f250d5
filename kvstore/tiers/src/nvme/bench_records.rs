//! Many records at once, for the restart figures of the benchmark.

use super::core::Nvme;
use super::disk::{Disk, DiskError, FileId};
use super::index::{Batch, Index};
use super::record::{Record, RecordKey, seal, unseal};
use protocol::block::{BlockKey, ContentDigest, SignedDigest, SlotId, StorageNamespace};
use protocol::disk::DiskBlock;
use protocol::hash::PrefixHash;
use protocol::id::Incarnation;
use protocol::sign::Keypair;
use protocol::trust::UnixTime;

const BATCH: u32 = 10_000;
/// Blocks of one prompt.
const CHAIN: u32 = 64;

/// Reserves all extents and gives every slot a record, in prompts of 64 blocks, without data.
pub(crate) fn fill<D: Disk, I: Index>(
    nvme: &Nvme<D, I>,
    storage: &StorageNamespace,
    now: UnixTime,
) -> Result<Vec<RecordKey>, DiskError> {
    let layout = nvme.layout();
    for extent in (0..layout.extents()).map(FileId) {
        nvme.disk().reserve(extent, layout.extent_bytes(extent))?;
    }
    let id = storage.id();
    let named = |slot: u32| {
        let hash = blake3::hash(&slot.to_le_bytes());
        let mut name = [0; 16];
        name.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
        BlockKey { prefix: PrefixHash(u128::from_le_bytes(name)), storage: id }
    };
    let signer = Keypair::from_seed(&[1; 32]);
    let life = Incarnation { counter: 1, nonce: 1 };
    // Signatures are not looked at here, but they must not compress either.
    let signature = |slot: u32| {
        let mut bytes = [0; 64];
        blake3::Hasher::new().update(&slot.to_be_bytes()).finalize_xof().fill(&mut bytes);
        protocol::wire::decode(&bytes).ok()
    };
    let signed = SignedDigest::sign(&signer, life, named(0), ContentDigest([0; 32]));
    let mut keys = Vec::new();
    let mut batch = Batch::default();
    for slot in 0..layout.slots {
        let depth = slot % CHAIN;
        let key = named(slot);
        let parent = (depth > 0).then(|| named(slot - 1));
        let mut signed = signed.clone();
        signed.digest = ContentDigest(*blake3::hash(&key.prefix.0.to_le_bytes()).as_bytes());
        if let Some(signature) = signature(slot) {
            signed.signature = signature;
        }
        let tokens = (depth + 1) * 16;
        let block = DiskBlock { key, parent, tokens, signed, claims: Vec::new() };
        let at = RecordKey { tokens, prefix: key.prefix, slot: SlotId(slot) };
        let name = at.encode();
        if let Some(value) = seal(&name, &Record::new(&block, now)) {
            batch.put(name, value);
        }
        keys.push(at);
        if batch.len() >= BATCH as usize {
            nvme.index().commit(&std::mem::take(&mut batch), false)?;
        }
    }
    nvme.index().commit(&batch, true)?;
    Ok(keys)
}

/// Looks a record up and checks it, as a read does.
pub(crate) fn look_up<D: Disk, I: Index>(
    nvme: &Nvme<D, I>,
    key: RecordKey,
) -> Result<bool, DiskError> {
    let name = key.encode();
    let value = nvme.index().get(&name)?;
    Ok(value.is_some_and(|value| unseal::<Record>(&name, &value).is_ok()))
}
