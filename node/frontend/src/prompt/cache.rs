//! What earlier turns have tokenised and hashed already.
//!
//! A prompt is cut at turn borders; the tokens of a part depend on nothing but the part, and a name
//! on nothing but the tokens before it. So where a prompt begins as an earlier one did, tokens and
//! names up to the last border in common are those of the earlier one: the history is compared, not
//! read again, and only the new turn is tokenised and hashed. Earlier prompts are found by their
//! first two parts (instructions and first question), in which sessions differ. Beside them the
//! tokens of single parts are kept by their bytes, and the names of first parts, which many sessions
//! share.
//!
//! All is bounded and forgets what was used longest ago. Keys include the routing key's mark: nothing
//! is shared between models or tenants.

mod lru;
mod prior;

use super::cuts;
use crate::error::ApiError;
use lru::Lru;
use memchr::memmem::Finder;
use model::Processor;
use prior::{Prior, best};
use protocol::hash::{GRANULE, PrefixHash, RoutingKey, Token};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tokenised and hashed prompt.
#[derive(Debug, Default)]
pub(crate) struct Tokenised {
    /// The rendered text; empty when nothing was rendered.
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    /// The names of all full granules.
    pub(crate) names: Vec<PrefixHash>,
    /// The end of each part in bytes and tokens.
    pub(crate) borders: Vec<(usize, u32)>,
}

impl Tokenised {
    /// A prompt that is one part: tokens that nobody rendered.
    pub(crate) fn whole(key: &RoutingKey, tokens: Vec<Token>) -> Self {
        let names = key.chain(&[], &tokens);
        let borders = vec![(0, length(&tokens))];
        Self { text: String::new(), tokens, names, borders }
    }

    /// Tokens of the whole parts within the first `bytes` bytes.
    pub(crate) fn tokens_within(&self, bytes: usize) -> u32 {
        self.borders.iter().rev().find(|(end, _)| *end <= bytes).map_or(0, |(_, tokens)| *tokens)
    }

    /// Memory that it takes.
    fn bytes(&self) -> usize {
        self.text.capacity()
            + self.tokens.len() * size_of::<Token>()
            + self.names.len() * size_of::<PrefixHash>()
            + self.borders.len() * size_of::<(usize, u32)>()
    }
}

fn length(tokens: &[Token]) -> u32 {
    u32::try_from(tokens.len()).unwrap_or(u32::MAX)
}

type Digest = [u8; 32];

/// Models whose turn marker is remembered.
const MARKERS_MAX: usize = 256;
/// Earlier prompts that begin with the same two parts: branches of one session, or runs of one task.
const BRANCHES_MAX: usize = 16;

/// Earlier prompts, tokens of parts, names of first parts.
pub(crate) struct PrefixCache {
    inner: Mutex<Inner>,
}

struct Inner {
    prompts: Lru<Vec<Arc<Tokenised>>>,
    tokens: Lru<Arc<[Token]>>,
    names: Lru<Arc<[PrefixHash]>>,
    markers: BTreeMap<PrefixHash, Option<Arc<Finder<'static>>>>,
}

impl PrefixCache {
    /// A cache of at most `bytes` bytes, most of them for earlier prompts.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                prompts: Lru::new(bytes / 8 * 5),
                tokens: Lru::new(bytes / 4),
                names: Lru::new(bytes / 8),
                markers: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens of `text`, equal to those of tokenising it in one go, and their names. `early`
    /// looks at the least number of tokens before any are made, and may refuse.
    pub(crate) fn read(
        &self,
        model: &Processor,
        key: &RoutingKey,
        text: String,
        early: impl FnOnce(usize) -> Result<(), ApiError>,
    ) -> Result<Arc<Tokenised>, ApiError> {
        let mark = mark_of(key);
        let marker = self.marker(model, mark);
        let marker = marker.as_deref();
        let anchor = digest(&mark, cuts::beginning(&text, marker).as_bytes());
        let priors = self.lock().prompts.get(&anchor).unwrap_or_default();
        let prior = best(&priors, &text, marker.map(|marker| marker.needle()));
        let known = prior.as_ref().map_or(0, |prior| prior.bytes);

        let parts = cuts::parts(text.get(known..).unwrap_or_default(), marker);
        let keys: Vec<Digest> = parts.iter().map(|part| digest(&mark, part.as_bytes())).collect();
        let cached: Vec<Option<Arc<[Token]>>> = {
            let mut inner = self.lock();
            keys.iter().map(|key| inner.tokens.get(key)).collect()
        };
        let tokenizer = model.tokenizer();
        let least = parts.iter().zip(&cached).map(|(part, cached)| match cached {
            Some(tokens) => tokens.len(),
            None => tokenizer.fewest(part),
        });
        early(prior.as_ref().map_or(0, |prior| prior.tokens as usize) + least.sum::<usize>())?;

        let mut out = prior.as_ref().map(Prior::begin).unwrap_or_default();
        let mut fresh = Vec::new();
        let mut bytes = known;
        for ((part, key), cached) in parts.iter().zip(&keys).zip(cached) {
            let tokens = cached.unwrap_or_else(|| {
                let tokens: Arc<[Token]> = tokenizer.encode(part, false).into();
                fresh.push((*key, tokens.clone()));
                tokens
            });
            out.tokens.extend_from_slice(&tokens);
            bytes += part.len();
            out.borders.push((bytes, length(&out.tokens)));
        }
        if prior.is_none()
            && let Some(first) = keys.first()
            && let Some(names) = self.lock().names.get(first)
        {
            out.names.extend_from_slice(&names);
        }
        key.extend_chain(&mut out.names, &out.tokens);
        out.text = text;
        let out = Arc::new(out);

        let mut inner = self.lock();
        for (key, tokens) in fresh {
            let bytes = tokens.len() * size_of::<Token>();
            inner.tokens.insert(key, tokens, bytes);
        }
        if let (None, Some(first), Some((_, tokens))) = (&prior, keys.first(), out.borders.first())
            && let Some(names) = out.names.get(..*tokens as usize / GRANULE)
            && !names.is_empty()
            && inner.names.get(first).is_none()
        {
            inner.names.insert(*first, names.into(), size_of_val(names));
        }
        inner.remember(anchor, prior.as_ref(), &out);
        Ok(out)
    }

    fn marker(&self, model: &Processor, mark: PrefixHash) -> Option<Arc<Finder<'static>>> {
        if let Some(marker) = self.lock().markers.get(&mark) {
            return marker.clone();
        }
        let marker = cuts::turn_marker(model);
        let marker = marker.map(|marker| Arc::new(Finder::new(marker.as_bytes()).into_owned()));
        let mut inner = self.lock();
        if inner.markers.len() >= MARKERS_MAX {
            inner.markers.clear();
        }
        inner.markers.insert(mark, marker.clone());
        marker
    }
}

impl Inner {
    /// Keeps a prompt for the next turn, in the place of the one that it goes on from.
    fn remember(&mut self, anchor: Digest, prior: Option<&Prior>, prompt: &Arc<Tokenised>) {
        let mut branches = self.prompts.get(&anchor).unwrap_or_default();
        let replaced = prior.filter(|prior| prior.is_all).map(|prior| &prior.prompt);
        branches.retain(|branch| !replaced.is_some_and(|old| Arc::ptr_eq(old, branch)));
        branches.insert(0, prompt.clone());
        branches.truncate(BRANCHES_MAX);
        let bytes = |branches: &[Arc<Tokenised>]| branches.iter().map(|b| b.bytes()).sum::<usize>();
        while branches.len() > 1 && bytes(&branches) > self.prompts.largest() {
            branches.pop();
        }
        let bytes = bytes(&branches);
        self.prompts.insert(anchor, branches, bytes);
    }
}

/// A number that stands for the key without telling it: the name of one fixed granule.
fn mark_of(key: &RoutingKey) -> PrefixHash {
    key.extend(None, &[Token(u32::MAX); GRANULE], &[]).unwrap_or_default()
}

fn digest(mark: &PrefixHash, bytes: &[u8]) -> Digest {
    *blake3::Hasher::new().update(&mark.0.to_le_bytes()).update(bytes).finalize().as_bytes()
}

#[cfg(test)]
mod tests;
