//! Responses that the cluster keeps: sealed, cut into records, found again from any node.
//!
//! Only nodes of the cluster can open a record, and only with the secret of its tenant, from which
//! its name comes as well: what another tenant keeps cannot even be asked for.

use crate::cluster::{Cluster, Kept, RecordName, Unkept};
use crate::error::{ApiError, Kind};
use crate::limits;
use crate::responses::record::{Recalled, Record, Wanted, unknown_previous};
use crate::seal::Seal;
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use futures::{StreamExt, TryStreamExt};
use protocol::time::Span;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one record; a response may need several.
const PART: usize = 256 << 10;
/// Most records of one response.
const PARTS_MAX: usize = 128;
/// Most bytes of a response that is read back.
const PLAIN_MAX: u64 = 128 << 20;
/// Most records a history is read from, one after the other.
const STEPS_MAX: usize = 512;
/// Most responses of which one request names items.
const REFERENCED_MAX: usize = 1024;
/// Responses looked up side by side for one request.
const SIDE_BY_SIDE: usize = 16;
/// How long what was read is remembered, at most.
const REMEMBERED: Duration = Duration::from_secs(300);

/// How a response is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Safe,
    Degraded,
    /// It is not, because of this.
    Not(String),
}

/// A response and the bytes that it was packed from.
#[derive(Clone)]
pub(crate) struct Weighed {
    record: Arc<Record>,
    bytes: usize,
}

/// Responses that were read or written here, to spare the cluster a question.
pub(crate) type Remembered = moka::sync::Cache<RecordName, Weighed>;

/// A memory for about so many bytes.
pub(crate) fn remembered(bytes: usize) -> Remembered {
    moka::sync::Cache::builder()
        .weigher(|_, weighed: &Weighed| u32::try_from(weighed.bytes).unwrap_or(u32::MAX))
        .max_capacity(bytes as u64)
        .time_to_live(REMEMBERED)
        .build()
}

/// One tenant's kept responses.
#[derive(Clone)]
pub(crate) struct Keeper {
    cluster: Arc<dyn Cluster>,
    remembered: Remembered,
    seal: Seal,
    names: [u8; 32],
    ttl: Span,
}

impl Keeper {
    /// The keeper of a tenant with this secret; responses are kept for `ttl`.
    pub(crate) fn new(
        cluster: Arc<dyn Cluster>,
        remembered: Remembered,
        secret: &[u8; 32],
        ttl: Duration,
    ) -> Self {
        let names = blake3::derive_key("dynamo-node 2026-11 record names", secret);
        let ttl = Span(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
        Self { cluster, remembered, seal: Seal::of_records(secret), names, ttl }
    }

    /// Where a part of a response is.
    fn name(&self, id: &str, part: usize) -> RecordName {
        let half = |input: &str| {
            let hash = blake3::keyed_hash(&self.names, input.as_bytes());
            let mut half = [0; 16];
            half.copy_from_slice(&hash.as_bytes()[..16]);
            half
        };
        RecordName { place: half(id), name: half(&format!("{id}/{part}")) }
    }

    /// Keeps a response. The first part is written last: a response is there as a whole or not at all.
    pub(crate) async fn keep(&self, record: Record) -> Standing {
        let Some(id) = record.response["id"].as_str().map(str::to_owned) else {
            return Standing::Not("the response has no id".into());
        };
        let seal = self.seal.clone();
        let record = Arc::new(record);
        let packed = {
            let record = record.clone();
            tokio::task::spawn_blocking(move || {
                let plain = record.to_bytes();
                (plain.len(), seal.seal(&pack(&plain)))
            })
        };
        let Ok((bytes, sealed)) = packed.await else {
            return Standing::Not("packing the response failed".into());
        };
        let parts = sealed.chunks(PART).count();
        if bytes as u64 > PLAIN_MAX || parts > PARTS_MAX {
            let most = [PLAIN_MAX as usize >> 20, (PART * PARTS_MAX) >> 20];
            return Standing::Not(format!("it takes over {} MiB, {} packed", most[0], most[1]));
        }
        let mut standing = Standing::Safe;
        for (part, bytes) in sealed.chunks(PART).enumerate().rev() {
            let count = u16::try_from(parts).unwrap_or(u16::MAX);
            let value = [&count.to_le_bytes(), bytes].concat();
            match self.cluster.keep(self.name(&id, part), value, self.ttl).await {
                Ok(Kept::Safe) => {}
                Ok(Kept::Degraded) => standing = Standing::Degraded,
                Err(Unkept(why)) => {
                    // What is written already would only take room.
                    for part in part + 1..parts {
                        let _ = self.cluster.forget(self.name(&id, part)).await;
                    }
                    return Standing::Not(why);
                }
            }
        }
        self.remembered.insert(self.name(&id, 0), Weighed { record, bytes });
        standing
    }

    /// A response as the cluster has it now.
    pub(crate) async fn recall(&self, id: &str) -> Result<Option<Arc<Record>>, ApiError> {
        Ok(self.weighed(id).await?.map(|weighed| weighed.record))
    }

    async fn weighed(&self, id: &str) -> Result<Option<Weighed>, ApiError> {
        let Some((parts, mut sealed)) = self.part(id, 0).await? else {
            self.remembered.invalidate(&self.name(id, 0));
            return Ok(None);
        };
        if let Some(weighed) = self.remembered.get(&self.name(id, 0)) {
            return Ok(Some(weighed));
        }
        for part in 1..parts {
            match self.part(id, part).await? {
                Some((_, bytes)) => sealed.extend(bytes),
                None => return Ok(None),
            }
        }
        let seal = self.seal.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let plain = unpack(&seal.unseal(&sealed)?)?;
            Some((Arc::new(Record::from_bytes(&plain)?), plain.len()))
        });
        let opened = opened.await.ok().flatten().filter(|(record, _)| record.response["id"] == id);
        let Some((record, bytes)) = opened else {
            tracing::warn!(response = id, "a kept response cannot be read and counts as lost");
            return Ok(None);
        };
        let weighed = Weighed { record, bytes };
        self.remembered.insert(self.name(id, 0), weighed.clone());
        Ok(Some(weighed))
    }

    /// A response whose content is wanted as part of another: a short memory of it will do.
    async fn remembered(&self, id: &str) -> Result<Option<Weighed>, ApiError> {
        match self.remembered.get(&self.name(id, 0)) {
            Some(weighed) => Ok(Some(weighed)),
            None => self.weighed(id).await,
        }
    }

    /// The number of parts, and the bytes of one.
    async fn part(&self, id: &str, part: usize) -> Result<Option<(usize, Vec<u8>)>, ApiError> {
        let value = self.cluster.recall(self.name(id, part)).await.map_err(unavailable)?;
        Ok(value.and_then(|value| {
            let (count, bytes) = value.split_first_chunk::<2>()?;
            let count = usize::from(u16::from_le_bytes(*count));
            (count <= PARTS_MAX).then(|| (count, bytes.to_vec()))
        }))
    }

    /// Removes a response; whether there was one. The first part goes last: what fails in between
    /// can be tried again.
    pub(crate) async fn forget(&self, id: &str) -> Result<bool, ApiError> {
        self.remembered.invalidate(&self.name(id, 0));
        let Some((parts, _)) = self.part(id, 0).await? else { return Ok(false) };
        for part in (0..parts.max(1)).rev() {
            // A deletion that no disk has taken may be undone by a restart: it is not told as done,
            // though nobody finds the response any more.
            self.cluster.forget(self.name(id, part)).await.map_err(unavailable)?;
        }
        Ok(true)
    }

    /// Finds what a request names, at most `most` bytes of it.
    pub(crate) async fn find(&self, wanted: Wanted, most: usize) -> Result<Recalled, ApiError> {
        let mut found = Recalled::default();
        let mut room = Room { most, left: most };
        if let Some(id) = &wanted.previous {
            let last = self.weighed(id).await?.ok_or_else(|| unknown_previous(id))?;
            room.take(&last, "previous_response_id")?;
            let record = last.record.clone();
            let history = self.history(last, &mut room).await?;
            found.previous = Some((record, history.ok_or_else(|| unknown_previous(id))?));
        }
        limits::at_most(
            "input",
            "responses with items that are named",
            wanted.referenced.len(),
            REFERENCED_MAX,
        )?;
        let look = |(response, items): (String, BTreeSet<String>)| {
            let keeper = self.clone();
            async move { Ok::<_, ApiError>((keeper.remembered(&response).await?, items)) }
        };
        let mut records = futures::stream::iter(wanted.referenced).map(look).buffered(SIDE_BY_SIDE);
        while let Some((weighed, items)) = records.try_next().await? {
            if let Some(weighed) = weighed {
                room.take(&weighed, "input")?;
                found.offer(&weighed.record, &items);
            }
        }
        Ok(found)
    }

    /// All items up to the end of `last`; `None` when an earlier part is gone.
    async fn history(
        &self,
        last: Weighed,
        room: &mut Room,
    ) -> Result<Option<Vec<serde_json::Value>>, ApiError> {
        let mut chain = vec![last.record];
        while let Some(base) = chain.last().and_then(|record| record.base.clone()) {
            match self.remembered(&base).await? {
                Some(earlier) if chain.len() < STEPS_MAX => {
                    room.take(&earlier, "previous_response_id")?;
                    chain.push(earlier.record);
                }
                _ => return Ok(None),
            }
        }
        let mut items = Vec::new();
        chain.iter().rev().for_each(|record| record.append_to(&mut items));
        Ok(Some(items))
    }
}

/// Bytes that what a request names may still have.
struct Room {
    most: usize,
    left: usize,
}

impl Room {
    fn take(&mut self, weighed: &Weighed, field: &str) -> Result<(), ApiError> {
        match self.left.checked_sub(weighed.bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ApiError::field(
                field,
                format_args!(
                    "the kept responses that are named have more than {} bytes",
                    self.most
                ),
            )),
        }
    }
}

impl Record {
    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

fn unavailable(Unkept(why): Unkept) -> ApiError {
    let message = format!("kept responses cannot be reached now: {why}");
    ApiError { retry_after: Some(1), ..ApiError::new(Kind::NoTarget, message) }
}

/// Makes bytes smaller.
fn pack(plain: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    // Reading from memory does not fail.
    let _ = DeflateEncoder::new(plain, Compression::fast()).read_to_end(&mut packed);
    packed
}

/// The bytes again; `None` when they are none of ours or too many.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let read = DeflateDecoder::new(packed).take(PLAIN_MAX + 1).read_to_end(&mut plain).ok()?;
    (read as u64 <= PLAIN_MAX).then_some(plain)
}
