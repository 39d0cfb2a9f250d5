//! What earlier turns have tokenised and hashed already.
//!
//! A prompt is cut at turn borders. The tokens of a part depend on nothing but the part, so they
//! are kept by its bytes; the names of a prefix are kept by the bytes of all parts up to a
//! border. Both are bounded and forget what was used longest ago. Keys include the routing key's
//! mark: nothing is shared between models or tenants.

use super::cuts;
use model::Model;
use protocol::hash::{GRANULE, PrefixHash, RoutingKey, Token};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tokenised prompt.
#[derive(Debug)]
pub(crate) struct Tokenised {
    pub(crate) tokens: Vec<Token>,
    /// The end of each part in bytes and tokens.
    pub(crate) borders: Vec<(usize, u32)>,
    /// For each border, the digest of all bytes before it.
    digests: Vec<Digest>,
}

impl Tokenised {
    /// Tokens of the whole parts within the first `bytes` bytes.
    pub(crate) fn tokens_within(&self, bytes: usize) -> u32 {
        self.borders.iter().rev().find(|(end, _)| *end <= bytes).map_or(0, |(_, tokens)| *tokens)
    }
}

type Digest = [u8; 32];

/// Bytes that an entry takes beside its content, roughly.
const ENTRY_BYTES: usize = 160;
/// Models whose turn marker is remembered.
const MARKERS_MAX: usize = 256;

/// Tokens of parts and names of prefixes.
pub(crate) struct PrefixCache {
    inner: Mutex<Inner>,
}

struct Inner {
    tokens: Lru<Arc<[Token]>>,
    names: Lru<Arc<[PrefixHash]>>,
    markers: BTreeMap<PrefixHash, Option<Arc<str>>>,
}

impl PrefixCache {
    /// A cache of at most `bytes` bytes: half for tokens, half for names.
    pub(crate) fn new(bytes: usize) -> Self {
        let (tokens, names) = (Lru::new(bytes / 2), Lru::new(bytes / 2));
        Self { inner: Mutex::new(Inner { tokens, names, markers: BTreeMap::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens of `text`, equal to those of tokenising it in one go.
    pub(crate) fn tokenise(&self, model: &Model, key: &RoutingKey, text: &str) -> Tokenised {
        let mark = mark_of(key);
        let marker = self.marker(model, mark);
        let parts = cuts::parts(text, marker.as_deref());
        let keys: Vec<Digest> = parts.iter().map(|part| digest(&mark, part.as_bytes())).collect();
        let known: Vec<Option<Arc<[Token]>>> = {
            let mut inner = self.lock();
            keys.iter().map(|key| inner.tokens.get(key)).collect()
        };
        let mut out = Tokenised { tokens: Vec::new(), borders: Vec::new(), digests: Vec::new() };
        let mut fresh = Vec::new();
        let mut bytes = 0;
        let mut rolling = [0; 32];
        for ((part, key), known) in parts.iter().zip(keys).zip(known) {
            let tokens = known.unwrap_or_else(|| {
                let tokens: Arc<[Token]> = model.tokenizer().encode(part, false).into();
                fresh.push((key, tokens.clone()));
                tokens
            });
            out.tokens.extend_from_slice(&tokens);
            bytes += part.len();
            rolling = *blake3::Hasher::new().update(&rolling).update(&key).finalize().as_bytes();
            out.borders.push((bytes, u32::try_from(out.tokens.len()).unwrap_or(u32::MAX)));
            out.digests.push(rolling);
        }
        let mut inner = self.lock();
        for (key, tokens) in fresh {
            let bytes = tokens.len() * size_of::<Token>();
            inner.tokens.insert(key, tokens, bytes);
        }
        out
    }

    /// A prompt that is one part: tokens that nobody rendered.
    pub(crate) fn whole(key: &RoutingKey, tokens: Vec<Token>) -> Tokenised {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect();
        let length = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let mark = digest(&mark_of(key), b"tokens");
        let digests = vec![*blake3::keyed_hash(&mark, &bytes).as_bytes()];
        Tokenised { tokens, borders: vec![(bytes.len(), length)], digests }
    }

    /// The names of all full granules: those of the longest known prefix, and the rest hashed.
    /// Remembered at two borders: after the first part, which other sessions share, and before
    /// the last, from where the next turn goes on.
    pub(crate) fn names(&self, key: &RoutingKey, prompt: &Tokenised) -> Vec<PrefixHash> {
        let known = {
            let mut inner = self.lock();
            prompt.digests.iter().rev().find_map(|digest| inner.names.get(digest))
        };
        let names = key.chain(known.as_deref().unwrap_or_default(), &prompt.tokens);
        let borders = prompt.borders.len();
        let mut keep = vec![0, borders.saturating_sub(2)];
        keep.dedup();
        let mut inner = self.lock();
        for at in keep {
            let (Some((_, tokens)), Some(digest)) =
                (prompt.borders.get(at), prompt.digests.get(at))
            else {
                continue;
            };
            let full = (*tokens as usize / GRANULE).min(names.len());
            if full > 0 && inner.names.get(digest).is_none() {
                inner.names.insert(*digest, names[..full].into(), full * size_of::<PrefixHash>());
            }
        }
        names
    }

    fn marker(&self, model: &Model, mark: PrefixHash) -> Option<Arc<str>> {
        if let Some(marker) = self.lock().markers.get(&mark) {
            return marker.clone();
        }
        let marker: Option<Arc<str>> = cuts::turn_marker(model).map(Into::into);
        let mut inner = self.lock();
        if inner.markers.len() >= MARKERS_MAX {
            inner.markers.clear();
        }
        inner.markers.insert(mark, marker.clone());
        marker
    }
}

/// A number that stands for the key without telling it: the name of one fixed granule.
fn mark_of(key: &RoutingKey) -> PrefixHash {
    key.extend(None, &[Token(u32::MAX); GRANULE], &[]).unwrap_or_default()
}

fn digest(mark: &PrefixHash, bytes: &[u8]) -> Digest {
    *blake3::Hasher::new().update(&mark.0.to_le_bytes()).update(bytes).finalize().as_bytes()
}

/// A map of bounded size that forgets what was used longest ago.
struct Lru<V> {
    entries: BTreeMap<Digest, Entry<V>>,
    /// Keys by last use.
    order: BTreeMap<u64, Digest>,
    uses: u64,
    bytes: usize,
    limit: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<V: Clone> Lru<V> {
    fn new(limit: usize) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, limit }
    }

    fn get(&mut self, key: &Digest) -> Option<V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        self.order.remove(&entry.used);
        self.order.insert(self.uses, *key);
        entry.used = self.uses;
        Some(entry.value.clone())
    }

    fn insert(&mut self, key: Digest, value: V, bytes: usize) {
        let bytes = bytes + ENTRY_BYTES;
        if bytes > self.limit / 2 {
            return; // one entry shall not push out all others
        }
        self.remove(&key);
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.entries.insert(key, Entry { value, bytes, used: self.uses });
        self.bytes += bytes;
        while self.bytes > self.limit {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Digest) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests;
