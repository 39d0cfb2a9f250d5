//! Responses that the cluster keeps: sealed, cut into records, found again from any node.
//!
//! Only nodes of the cluster can open a record, and only with the secret of its tenant, from which
//! its name comes as well: what another tenant keeps cannot even be asked for.

use crate::cluster::{Cluster, Kept, RecordName, Unkept};
use crate::error::{ApiError, Kind};
use crate::limits;
use crate::responses::record::{Copied, Recalled, Record, Room, Wanted, unknown_previous};
use crate::seal::Seal;
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use futures::{StreamExt, TryStreamExt};
use protocol::time::Span;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one record; a response may need several.
const PART: usize = 256 << 10;
/// Most records of one response.
const PARTS_MAX: usize = 128;
/// Most bytes of a response that is read back.
const PLAIN_MAX: usize = 128 << 20;
/// Most records a history is read from, one after the other.
const STEPS_MAX: usize = 512;
/// Most responses of which one request names items.
const REFERENCED_MAX: usize = 1024;
/// Responses of which the first record is fetched side by side for one request; they are opened one
/// after the other.
const SIDE_BY_SIDE: usize = 16;
/// How long what was read is remembered, at most.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Fields that name kept responses, and single items of them.
const PREVIOUS: &str = "previous_response_id";
const INPUT: &str = "input";

/// How a response is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Safe,
    Degraded,
    /// It is not, because of this.
    Not(String),
}

/// A response and the memory that it takes, in bytes.
#[derive(Clone)]
pub(crate) struct Weighed {
    record: Arc<Record>,
    bytes: usize,
}

impl Weighed {
    fn of(record: Record) -> Self {
        Self { bytes: record.weight(), record: Arc::new(record) }
    }
}

/// What there is of a response before it is opened.
enum Begun {
    /// All of it: it is remembered.
    Open(Weighed),
    /// The number of its parts, and the first.
    Sealed(usize, Vec<u8>),
}

/// Why a response cannot be read.
enum Unread {
    /// It has more bytes than there is room for.
    Large,
    /// It is none of ours.
    Damaged,
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

    /// Keeps a response. This goes on when the client leaves: parts without their first would only
    /// take room.
    pub(crate) async fn keep(&self, record: Record) -> Standing {
        let keeper = self.clone();
        let keeping = tokio::spawn(async move { keeper.keep_whole(record).await });
        keeping.await.unwrap_or_else(|_| Standing::Not("keeping the response failed".into()))
    }

    /// The first part is written last: a response is there as a whole or not at all.
    async fn keep_whole(&self, record: Record) -> Standing {
        let Some(id) = record.response["id"].as_str().map(str::to_owned) else {
            return Standing::Not("the response has no id".into());
        };
        let seal = self.seal.clone();
        let packed = apart(move || {
            let plain = record.to_bytes();
            (plain.len(), seal.seal(&pack(&plain)), Weighed::of(record))
        });
        let Ok((bytes, sealed, weighed)) = packed.await else {
            return Standing::Not("packing the response failed".into());
        };
        let parts = sealed.chunks(PART).count();
        if bytes > PLAIN_MAX || parts > PARTS_MAX {
            let most = [PLAIN_MAX >> 20, (PART * PARTS_MAX) >> 20];
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
        self.remembered.insert(self.name(&id, 0), weighed);
        standing
    }

    /// A response as the cluster has it now.
    pub(crate) async fn recall(&self, id: &str) -> Result<Option<Arc<Record>>, ApiError> {
        let weighed = self.weighed(id, &Room::new(PLAIN_MAX), "id").await?;
        Ok(weighed.map(|weighed| weighed.record))
    }

    /// As [`Self::recall`], if `room` has as much left; `field` names it.
    async fn weighed(
        &self,
        id: &str,
        room: &Room,
        field: &str,
    ) -> Result<Option<Weighed>, ApiError> {
        let Some((parts, first)) = self.part(id, 0).await? else {
            self.remembered.invalidate(&self.name(id, 0));
            return Ok(None);
        };
        let remembered = self.remembered.get(&self.name(id, 0));
        let begun = remembered.map_or(Begun::Sealed(parts, first), Begun::Open);
        self.whole(id, begun, room, field).await
    }

    /// All of a response that has begun.
    async fn whole(
        &self,
        id: &str,
        begun: Begun,
        room: &Room,
        field: &str,
    ) -> Result<Option<Weighed>, ApiError> {
        let (parts, mut sealed) = match begun {
            Begun::Open(weighed) => return Ok(Some(weighed)),
            Begun::Sealed(parts, first) => (parts, first),
        };
        let most = room.left().min(PLAIN_MAX);
        // What is sealed is hardly larger than what it was packed from.
        if parts.saturating_sub(1) * PART > most {
            return Err(room.exceeded(field));
        }
        for part in 1..parts {
            match self.part(id, part).await? {
                Some((_, bytes)) => sealed.extend(bytes),
                None => return Ok(None),
            }
        }
        let seal = self.seal.clone();
        match apart(move || open(&seal, &sealed, most)).await? {
            Ok(weighed) if weighed.record.response["id"] == id => {
                self.remembered.insert(self.name(id, 0), weighed.clone());
                Ok(Some(weighed))
            }
            Err(Unread::Large) => Err(room.exceeded(field)),
            Ok(_) | Err(Unread::Damaged) => {
                tracing::warn!(response = id, "a kept response cannot be read and counts as lost");
                Ok(None)
            }
        }
    }

    /// A response whose content is wanted as part of another: a short memory of it will do.
    async fn begun(&self, id: &str) -> Result<Option<Begun>, ApiError> {
        match self.remembered.get(&self.name(id, 0)) {
            Some(weighed) => Ok(Some(Begun::Open(weighed))),
            None => {
                let first = self.part(id, 0).await?;
                Ok(first.map(|(parts, first)| Begun::Sealed(parts, first)))
            }
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

    /// Finds what a request names: items that take at most `most` bytes of memory.
    pub(crate) async fn find(&self, wanted: Wanted, most: usize) -> Result<Recalled, ApiError> {
        let mut found = Recalled::within(most);
        if let Some(id) = &wanted.previous {
            let last = self.weighed(id, &found.room, PREVIOUS).await?;
            let last = last.ok_or_else(|| unknown_previous(id))?.record;
            let history = self.history(last.clone(), &mut found.room).await?;
            found.previous = Some((last, history.ok_or_else(|| unknown_previous(id))?));
        }
        limits::at_most(
            INPUT,
            "responses with items that are named",
            wanted.referenced.len(),
            REFERENCED_MAX,
        )?;
        let look = |(response, named): (String, BTreeSet<String>)| {
            let keeper = self.clone();
            async move { Ok::<_, ApiError>((keeper.begun(&response).await?, response, named)) }
        };
        let mut responses =
            futures::stream::iter(wanted.referenced).map(look).buffered(SIDE_BY_SIDE);
        while let Some((begun, response, named)) = responses.try_next().await? {
            let Some(begun) = begun else { continue };
            if let Some(weighed) = self.whole(&response, begun, &found.room, INPUT).await? {
                let copy = move |record: &Record, most| record.named(&named, most);
                let items = copied(weighed.record, &mut found.room, INPUT, copy).await?;
                found.offer(items);
            }
        }
        Ok(found)
    }

    /// All items up to the end of `last`; `None` when an earlier part is gone.
    async fn history(
        &self,
        last: Arc<Record>,
        room: &mut Room,
    ) -> Result<Option<Vec<Value>>, ApiError> {
        let (mut turns, mut next) = (Vec::new(), last);
        loop {
            let base = next.base.clone();
            turns.push(copied(next, room, PREVIOUS, Record::copied).await?);
            let Some(base) = base else { break };
            let Some(begun) = self.begun(&base).await? else { return Ok(None) };
            match self.whole(&base, begun, room, PREVIOUS).await? {
                Some(earlier) if turns.len() < STEPS_MAX => next = earlier.record,
                _ => return Ok(None),
            }
        }
        Ok(Some(turns.into_iter().rev().flatten().collect()))
    }
}

/// Copies of items of a record, for which `room` is taken; `field` names them.
async fn copied(
    record: Arc<Record>,
    room: &mut Room,
    field: &str,
    copy: impl FnOnce(&Record, usize) -> Option<Copied> + Send + 'static,
) -> Result<Vec<Value>, ApiError> {
    let left = room.left();
    let copied = apart(move || copy(&record, left)).await?;
    let (items, bytes) = copied.ok_or_else(|| room.exceeded(field))?;
    room.take(bytes, field)?;
    Ok(items)
}

/// Runs `work` where it holds nobody up: a response may be large.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |_| ApiError::new(Kind::Failed, "a kept response could not be worked on");
    tokio::task::spawn_blocking(work).await.map_err(failed)
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

/// The bytes again, at most `most`.
fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>, Unread> {
    let mut plain = Vec::new();
    let mut packed = DeflateDecoder::new(packed).take(most as u64 + 1);
    let read = packed.read_to_end(&mut plain).map_err(|_| Unread::Damaged)?;
    if read <= most { Ok(plain) } else { Err(Unread::Large) }
}

/// What was packed and sealed, if it has at most `most` bytes.
fn open(seal: &Seal, sealed: &[u8], most: usize) -> Result<Weighed, Unread> {
    let packed = seal.unseal(sealed).ok_or(Unread::Damaged)?;
    let plain = unpack(&packed, most)?;
    Record::from_bytes(&plain).map(Weighed::of).ok_or(Unread::Damaged)
}

#[cfg(test)]
mod tests;
