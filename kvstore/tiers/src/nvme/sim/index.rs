//! An index whose log can lose its unsynced end.

use super::super::disk::DiskError;
use super::super::index::{Batch, Index};
use super::super::lock;
use super::random::Random;
use protocol::time::Span;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What the index does wrong. Chances are per operation, in millionths.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct IndexFaults {
    /// A commit gives an error; it may have happened.
    pub commit_error: u32,
    /// A look-up gives an error.
    pub get_error: u32,
    /// It is as large as it may become.
    pub full: bool,
    /// Time of a synced commit.
    pub sync: Span,
    /// After so many more commits the machine is gone, until [`SimIndex::crash`].
    pub crash_after: Option<u64>,
}

#[derive(Default)]
struct Content {
    durable: BTreeMap<Vec<u8>, Vec<u8>>,
    current: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Batches since the last sync.
    log: Vec<Batch>,
    spent: Span,
    gone: bool,
}

struct Device {
    faults: IndexFaults,
    random: Random,
    content: Content,
}

/// A simulated [`Index`]; clones are the same device.
#[derive(Clone)]
pub struct SimIndex(Arc<Mutex<Device>>);

fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: &Batch) {
    for (key, value) in batch.changes() {
        match value {
            Some(value) => {
                map.insert(key.to_vec(), value.to_vec());
            }
            None => {
                map.remove(key);
            }
        }
    }
}

fn gone() -> DiskError {
    DiskError::Io("the machine is gone".to_owned())
}

impl SimIndex {
    /// An empty index.
    pub fn new(seed: u64, faults: IndexFaults) -> Self {
        let (random, content) = (Random::new(seed), Content::default());
        Self(Arc::new(Mutex::new(Device { faults, random, content })))
    }

    /// Other faults from now on.
    pub fn set_faults(&self, faults: IndexFaults) {
        lock(&self.0).faults = faults;
    }

    /// Power is lost and comes back: any number of the unsynced batches are gone, the last first.
    pub fn crash(&self) {
        let mut device = lock(&self.0);
        let Device { faults, random, content } = &mut *device;
        let kept = usize::try_from(random.below(content.log.len() as u64 + 1)).unwrap_or(0);
        for batch in content.log.drain(..).take(kept) {
            apply(&mut content.durable, &batch);
        }
        content.current.clone_from(&content.durable);
        content.gone = false;
        faults.crash_after = None;
    }

    /// Virtual time that operations have taken since the last call.
    pub fn take_spent(&self) -> Span {
        std::mem::take(&mut lock(&self.0).content.spent)
    }

    /// Changes one byte of a record's value, on the medium too; false when there is none.
    pub fn corrupt_record(&self) -> bool {
        let mut device = lock(&self.0);
        let Device { random, content, .. } = &mut *device;
        let chosen = usize::try_from(random.below(content.current.len() as u64)).unwrap_or(0);
        let Some((key, value)) = content.current.iter_mut().nth(chosen) else { return false };
        let at = usize::try_from(random.below(value.len() as u64)).unwrap_or(0);
        if let Some(byte) = value.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
        content.durable.insert(key.clone(), value.clone());
        true
    }

    /// Puts any bytes under a key, on the medium too.
    pub fn plant(&self, key: &[u8], value: &[u8]) {
        let content = &mut lock(&self.0).content;
        content.current.insert(key.to_vec(), value.to_vec());
        content.durable.insert(key.to_vec(), value.to_vec());
    }

    /// Number of records, the folder's description included.
    pub fn len(&self) -> usize {
        lock(&self.0).content.current.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Index for SimIndex {
    fn commit(&self, batch: &Batch, sync: bool) -> Result<(), DiskError> {
        let mut device = lock(&self.0);
        let Device { faults, random, content } = &mut *device;
        if content.gone {
            return Err(gone());
        }
        if faults.full && batch.changes().any(|(_, value)| value.is_some()) {
            return Err(DiskError::IndexFull);
        }
        if let Some(left) = &mut faults.crash_after {
            match left.checked_sub(1) {
                Some(rest) => *left = rest,
                None => {
                    content.gone = true;
                    content.log.push(batch.clone());
                    return Err(gone());
                }
            }
        }
        let failed = random.chance(faults.commit_error);
        if failed && random.chance(500_000) {
            return Err(DiskError::Io("commit error".to_owned()));
        }
        apply(&mut content.current, batch);
        content.log.push(batch.clone());
        if failed {
            return Err(DiskError::Io("commit error".to_owned()));
        }
        if sync {
            for batch in content.log.drain(..) {
                apply(&mut content.durable, &batch);
            }
            content.spent = content.spent + faults.sync;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DiskError> {
        let mut device = lock(&self.0);
        if device.content.gone {
            return Err(gone());
        }
        let faults = device.faults;
        if device.random.chance(faults.get_error) {
            return Err(DiskError::Io("look-up error".to_owned()));
        }
        Ok(device.content.current.get(key).cloned())
    }

    fn scan(&self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), DiskError> {
        let device = lock(&self.0);
        if device.content.gone {
            return Err(gone());
        }
        device.content.current.iter().for_each(|(key, value)| each(key, value));
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let device = lock(&self.0);
        device.content.current.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

impl std::fmt::Debug for SimIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimIndex({} records)", self.len())
    }
}
