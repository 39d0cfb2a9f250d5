//! What an earlier life left: read, checked, cut to the limit, before anything is served.

use super::core::Nvme;
use super::disk::{Disk, DiskError, FileId};
use super::index::{Batch, Index};
use super::layout::{EXTENT_BYTES, Layout, PROBE_BYTES};
use super::record::{Bad, META_KEY, Meta, Record, RecordKey, VERSION, seal, unseal};
use protocol::block::{SlotId, StorageId, StorageNamespace};
use protocol::disk::DiskBlock;
use protocol::trust::UnixTime;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

/// Removals in one batch.
const BATCH: usize = 4096;

/// Why there is no NVMe tier.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvmeError {
    /// Not one block fits.
    #[error(
        "the NVMe limit of {limit} bytes holds no block ({block} bytes with the probe area); raise \
         it, or set it to 0 to go without"
    )]
    TooSmall {
        /// The limit.
        limit: u64,
        /// What one block takes.
        block: u64,
    },
    /// A later release made the folder. Nothing in it was changed.
    #[error(
        "the NVMe folder was written by a later release (its version is {found}, this release \
         knows {known}): start that release, or give this one another --data-dir, or move the \
         folder `nvme` away"
    )]
    Newer {
        /// The folder's version.
        found: String,
        /// The latest this release knows.
        known: u8,
    },
    /// The slots of the DRAM pool are too small for the blocks.
    #[error("a DRAM slot of {slot} bytes holds no block of {block} bytes")]
    Pool {
        /// Bytes of a slot.
        slot: u64,
        /// Bytes of a block.
        block: u64,
    },
    /// Another process works in the folder.
    #[error("the NVMe folder {} is in use by another dynamo-node", .0.display())]
    InUse(PathBuf),
    /// The disk does not work.
    #[error("the NVMe disk does not work: {0}")]
    Disk(#[from] DiskError),
    /// The system gave no threads or memory.
    #[error("cannot start the NVMe tier: {0}")]
    System(String),
}

/// How to open a tier.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenOptions {
    /// The form of its blocks.
    pub storage: StorageNamespace,
    /// Most bytes of its data files, the probe area included.
    pub limit: u64,
    /// Bytes of an extent, for a new folder.
    pub extent_bytes: u64,
    /// Extents not to be trusted: their files are made anew.
    pub abandoned: BTreeSet<FileId>,
}

impl OpenOptions {
    /// The usual ones.
    pub fn new(storage: StorageNamespace, limit: u64) -> Self {
        Self { storage, limit, extent_bytes: EXTENT_BYTES, abandoned: BTreeSet::new() }
    }
}

/// What was found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OpenReport {
    /// Why the folder was begun anew, when it was.
    pub fresh: Option<String>,
    /// Blocks found.
    pub found: u64,
    /// Records that were damaged.
    pub damaged: u64,
    /// Records of blocks without their parents.
    pub orphans: u64,
    /// Records outside the limit, or of files that are gone.
    pub outside: u64,
    /// Records of blocks whose legal age is over.
    pub expired: u64,
    /// Records of a slot or a block that another record has.
    pub twice: u64,
}

/// An opened tier and what it holds.
#[derive(Debug)]
pub struct Opened<D, I> {
    /// The tier.
    pub nvme: Nvme<D, I>,
    /// Its blocks, parents before children.
    pub found: Vec<(SlotId, DiskBlock)>,
    /// The account.
    pub report: OpenReport,
}

impl<D: Disk, I: Index> Nvme<D, I> {
    /// Opens what is on `disk` and `index`. A folder of another storage namespace, or whose
    /// description is damaged, is begun anew; one of a later release is refused untouched.
    ///
    /// # Errors
    /// See [`NvmeError`].
    pub fn open(
        disk: D,
        index: I,
        options: &OpenOptions,
        now: UnixTime,
    ) -> Result<Opened<D, I>, NvmeError> {
        let mut layout = Layout::new(&options.storage, options.limit, options.extent_bytes)?;
        let mut report = OpenReport::default();
        let meta = match former(&index, &options.storage)? {
            Former::Ours(meta) => meta,
            Former::Fresh(why) => {
                begin_anew(&disk, &index)?;
                report.fresh = why;
                Meta { storage: options.storage.clone(), extent_slots: layout.extent_slots }
            }
        };
        layout.extent_slots = meta.extent_slots.max(1);
        let storage = options.storage.id();
        let mut lengths: BTreeMap<FileId, u64> = disk.files()?.into_iter().collect();
        lengths.retain(|file, _| !options.abandoned.contains(file));
        let mut survey = Survey::new(layout, storage, &lengths, now);
        index.scan(&mut |key, value| survey.record(key, value))?;
        let (keys, found, unwanted) = survey.end(&mut report);
        // Records first: a crash between the two must not leave records of files that are gone.
        remove(&index, &unwanted)?;
        // What an interrupted commit left without its sync is told as found: it must be durable.
        describe(&index, &meta)?;
        cut(&disk, &layout, &options.abandoned)?;
        probe(&disk, now)?;
        let reserved = disk.files()?.into_iter().filter(|(file, _)| *file != FileId::PROBE);
        let reserved = reserved.collect();
        let nvme = Self::assemble(disk, index, layout, storage, &keys, reserved);
        Ok(Opened { nvme, found, report })
    }
}

enum Former {
    Ours(Meta),
    /// To be begun anew; why, when something was there.
    Fresh(Option<String>),
}

fn former(index: &impl Index, storage: &StorageNamespace) -> Result<Former, NvmeError> {
    let Some(value) = index.get(META_KEY)? else {
        return Ok(Former::Fresh(None));
    };
    Ok(match unseal::<Meta>(META_KEY, &value) {
        Err(Bad::Newer(found)) => {
            return Err(NvmeError::Newer { found: found.to_string(), known: VERSION });
        }
        Err(Bad::Damaged) => Former::Fresh(Some("its description is damaged".to_owned())),
        Ok(meta) => match meta.storage.differs(storage) {
            Some(field) => Former::Fresh(Some(format!("its blocks have another {field}"))),
            None => Former::Ours(meta),
        },
    })
}

/// Writes the folder's description, durable with everything before it.
fn describe(index: &impl Index, meta: &Meta) -> Result<(), NvmeError> {
    let value = seal(META_KEY, meta);
    let value = value.ok_or_else(|| NvmeError::System("the namespace is too long".to_owned()))?;
    let mut batch = Batch::default();
    batch.put(META_KEY.to_vec(), value);
    Ok(index.commit(&batch, true)?)
}

/// Removes all data, then all records. Until the new description is durable, the next start comes
/// here again.
fn begin_anew(disk: &impl Disk, index: &impl Index) -> Result<(), NvmeError> {
    for (file, _) in disk.files()? {
        disk.remove(file)?;
    }
    let mut keys = Vec::new();
    index.scan(&mut |key, _| {
        if key != META_KEY {
            keys.push(key.to_vec());
        }
    })?;
    remove(index, &keys)
}

fn remove(index: &impl Index, keys: &[Vec<u8>]) -> Result<(), NvmeError> {
    for keys in keys.chunks(BATCH) {
        let mut batch = Batch::default();
        keys.iter().for_each(|key| batch.delete(key.clone()));
        index.commit(&batch, true)?;
    }
    Ok(())
}

/// Brings the files within the limit.
fn cut(disk: &impl Disk, layout: &Layout, abandoned: &BTreeSet<FileId>) -> Result<(), NvmeError> {
    for (file, length) in disk.files()? {
        let wanted = match file {
            FileId::PROBE => PROBE_BYTES,
            _ if abandoned.contains(&file) => 0,
            _ => layout.extent_bytes(file),
        };
        match wanted {
            0 => disk.remove(file)?,
            wanted if wanted < length => disk.shrink(file, wanted)?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes, syncs and reads back a sector that differs each time.
fn probe(disk: &impl Disk, now: UnixTime) -> Result<(), NvmeError> {
    let length = usize::try_from(PROBE_BYTES).unwrap_or(0);
    let mut pattern = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"dynamo-node probe").update(&now.0.to_le_bytes());
    hasher.finalize_xof().fill(&mut pattern);
    disk.reserve(FileId::PROBE, PROBE_BYTES)?;
    disk.write_at(FileId::PROBE, 0, &pattern)?;
    disk.sync(FileId::PROBE)?;
    let mut back = vec![0; length];
    disk.read_at(FileId::PROBE, 0, &mut back)?;
    if back != pattern {
        return Err(DiskError::Io("the probe reads back other bytes".to_owned()).into());
    }
    Ok(())
}

/// Looks at every record, in order of tokens, so that parents come first.
struct Survey<'a> {
    layout: Layout,
    storage: StorageId,
    lengths: &'a BTreeMap<FileId, u64>,
    now: UnixTime,
    /// Tokens of the prefixes accepted so far.
    accepted: HashMap<u128, u32>,
    slots: HashSet<u32>,
    keys: Vec<RecordKey>,
    found: Vec<(SlotId, DiskBlock)>,
    unwanted: Vec<Vec<u8>>,
    report: OpenReport,
}

enum Unwanted {
    Damaged,
    Orphan,
    Outside,
    Expired,
    Twice,
}

impl<'a> Survey<'a> {
    fn new(
        layout: Layout,
        storage: StorageId,
        lengths: &'a BTreeMap<FileId, u64>,
        now: UnixTime,
    ) -> Self {
        Self {
            layout,
            storage,
            lengths,
            now,
            accepted: HashMap::new(),
            slots: HashSet::new(),
            keys: Vec::new(),
            found: Vec::new(),
            unwanted: Vec::new(),
            report: OpenReport::default(),
        }
    }

    fn record(&mut self, key: &[u8], value: &[u8]) {
        if key == META_KEY {
            return;
        }
        let judged = self.judge(key, value);
        let report = &mut self.report;
        let count = match judged {
            Ok((at, block)) => {
                self.accepted.insert(at.prefix.0, at.tokens);
                self.slots.insert(at.slot.0);
                self.keys.push(at);
                self.found.push((at.slot, block));
                report.found += 1;
                return;
            }
            Err(Unwanted::Damaged) => &mut report.damaged,
            Err(Unwanted::Orphan) => &mut report.orphans,
            Err(Unwanted::Outside) => &mut report.outside,
            Err(Unwanted::Expired) => &mut report.expired,
            Err(Unwanted::Twice) => &mut report.twice,
        };
        *count += 1;
        self.unwanted.push(key.to_vec());
    }

    fn judge(&self, key: &[u8], value: &[u8]) -> Result<(RecordKey, DiskBlock), Unwanted> {
        let at = RecordKey::decode(key).ok_or(Unwanted::Damaged)?;
        let record: Record = unseal(key, value).map_err(|_| Unwanted::Damaged)?;
        let (extent, offset) = self.layout.place(at.slot).ok_or(Unwanted::Outside)?;
        let length = self.lengths.get(&extent).copied().unwrap_or(0);
        if offset.saturating_add(self.layout.stride) > length {
            return Err(Unwanted::Outside);
        }
        if self.slots.contains(&at.slot.0) || self.accepted.contains_key(&at.prefix.0) {
            return Err(Unwanted::Twice);
        }
        if let Some(parent) = record.parent() {
            let above = self.accepted.get(&parent.0);
            above.filter(|tokens| **tokens < at.tokens).ok_or(Unwanted::Orphan)?;
        }
        let block = record.block(&at, self.storage, self.now).ok_or(Unwanted::Expired)?;
        Ok((at, block))
    }

    #[allow(clippy::type_complexity)] // the three lists, taken apart at once
    fn end(
        self,
        report: &mut OpenReport,
    ) -> (Vec<RecordKey>, Vec<(SlotId, DiskBlock)>, Vec<Vec<u8>>) {
        *report = OpenReport { fresh: report.fresh.take(), ..self.report };
        (self.keys, self.found, self.unwanted)
    }
}
