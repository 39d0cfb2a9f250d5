//! What earlier turns have tokenised and hashed already.
//!
//! A prompt is cut at turn borders; the tokens of a part depend on nothing but the part (or are those
//! that the model wrote, see below), and a name on nothing but the tokens before it. So where a prompt begins as an earlier one did, tokens and
//! names up to the last border in common are those of the earlier one: the history is compared, not
//! read again, and only the new turn is tokenised and hashed. Earlier prompts are found by their
//! first two parts (instructions and first question), in which sessions differ, or by their first where
//! only the beginning of the answer follows. Beside them the
//! tokens of single parts are kept by their bytes, and the names of first parts, which many sessions
//! share.
//!
//! Answers are remembered with the prompts they were given to, by the ids that the model wrote. Where
//! a later prompt goes on with exactly that text, up to a control token that ends it, those ids take
//! its place: the tokenizer might cut the text otherwise, and what the engine holds of the answer would
//! be worth nothing. Only prompts that go on from that very prompt see them.
//!
//! All is bounded and forgets what was used longest ago. Keys include the routing key's mark: nothing
//! is shared between models or tenants.

mod prior;

use super::cuts;
use crate::error::ApiError;
use crate::lru::{Digest, Lru};
use crate::tokenize;
use cuts::Marks;
use model::Processor;
pub(crate) use prior::common;
use prior::{Begun, Branch, Prior, Written, best};
use protocol::hash::{GRANULE, PrefixHash, RoutingKey, Token};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A tokenised and hashed prompt.
#[derive(Debug, Default)]
pub(crate) struct Tokenised {
    /// The rendered text; empty when nothing was rendered.
    pub(crate) text: String,
    pub(crate) tokens: Arc<Vec<Token>>,
    /// The names of all full granules.
    pub(crate) names: Arc<Vec<PrefixHash>>,
    /// The end of each part in bytes and tokens.
    pub(crate) borders: Vec<(usize, u32)>,
    /// Where it is remembered.
    place: Option<Place>,
}

/// The digest under which a prompt is remembered, and its model's marks.
#[derive(Debug)]
struct Place {
    anchor: Digest,
    marks: Arc<Marks>,
}

impl Tokenised {
    /// A prompt that is one part: tokens that nobody rendered.
    pub(crate) fn whole(key: &RoutingKey, tokens: Vec<Token>) -> Self {
        let names = key.chain(&[], &tokens);
        let borders = vec![(0, length(&tokens))];
        Self { tokens: Arc::new(tokens), names: Arc::new(names), borders, ..Self::default() }
    }

    /// Tokens of the whole parts within the first `bytes` bytes.
    pub(crate) fn tokens_within(&self, bytes: usize) -> u32 {
        self.borders.iter().rev().find(|(end, _)| *end <= bytes).map_or(0, |(_, tokens)| *tokens)
    }

    /// Memory that it takes.
    fn bytes(&self) -> usize {
        /// The structures themselves, and their places in lists.
        const AROUND: usize = 512;
        AROUND
            + self.text.capacity()
            + self.tokens.capacity() * size_of::<Token>()
            + self.names.capacity() * size_of::<PrefixHash>()
            + self.borders.capacity() * size_of::<(usize, u32)>()
    }
}

fn length(tokens: &[Token]) -> u32 {
    u32::try_from(tokens.len()).unwrap_or(u32::MAX)
}

/// Keys whose model's marks are remembered.
const MARKS_MAX: usize = 256;
/// Parts of one prompt whose tokens are remembered one by one.
const PARTS_MAX: usize = 4096;
/// Earlier prompts that begin with the same two parts: branches of one session, or runs of one task.
const BRANCHES_MAX: usize = 16;

/// Earlier prompts, tokens of parts, names of first parts.
pub(crate) struct PrefixCache {
    inner: Mutex<Inner>,
}

struct Inner {
    prompts: Lru<Vec<Branch>>,
    tokens: Lru<Arc<[Token]>>,
    names: Lru<Arc<[PrefixHash]>>,
    marks: BTreeMap<PrefixHash, Arc<Marks>>,
}

impl PrefixCache {
    /// A cache of at most `bytes` bytes, most of them for earlier prompts.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                prompts: Lru::new(bytes / 8 * 5),
                tokens: Lru::new(bytes / 4),
                names: Lru::new(bytes / 8),
                marks: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens of `text` and their names: those of tokenising it in one go, but for answers that
    /// the model wrote with others. `early`
    /// looks at the least number of tokens before any are made, and may refuse.
    pub(crate) fn read(
        &self,
        model: &Processor,
        key: &RoutingKey,
        text: String,
        early: impl Fn(usize) -> Result<(), ApiError>,
    ) -> Result<Arc<Tokenised>, ApiError> {
        let mark = mark_of(key);
        let marks = self.marks(model, mark);
        let marker = marks.turn.as_ref();
        let first = cuts::beginning(&text, marker, 1).unwrap_or(&text);
        let two = cuts::beginning(&text, marker, 2);
        let anchor = digest(&mark, two.unwrap_or(first).as_bytes());
        let known = |anchor: &Digest| {
            let branches = self.lock().prompts.get(anchor).unwrap_or_default();
            best(&branches, &text, &marks)
        };
        // A first question without instructions is remembered by itself.
        let alone = || two.and_then(|_| known(&digest(&mark, first.as_bytes())));
        let prior = known(&anchor).or_else(alone);
        if let Some(prior) = prior.as_ref().filter(|prior| prior.is_same) {
            early(prior.tokens)?;
            return Ok(prior.prompt.clone());
        }
        let known = prior.as_ref().map_or(0, |prior| prior.bytes);

        let parts = cuts::parts(text.get(known..).unwrap_or_default(), marker);
        // No part is empty. Thousands of them are no conversation: they are not looked up.
        let before = prior.as_ref().map_or(0, |prior| prior.tokens);
        early(before + parts.len())?;
        let looked_up = if parts.len() > PARTS_MAX { &[] } else { parts.as_slice() };
        let keys: Vec<Digest> =
            looked_up.iter().map(|part| digest(&mark, part.as_bytes())).collect();
        let mut cached: Vec<Option<Arc<[Token]>>> = {
            let mut inner = self.lock();
            keys.iter().map(|key| inner.tokens.get(key)).collect()
        };
        cached.resize(parts.len(), None);
        let tokenizer = model.tokenizer();
        let least = parts.iter().zip(&cached).map(|(part, cached)| match cached {
            Some(tokens) => tokens.len(),
            None => tokenizer.fewest(part).max(1),
        });
        early(before + least.sum::<usize>())?;

        let Begun { mut tokens, mut names, mut borders } =
            prior.as_ref().map(Prior::begin).unwrap_or_default();
        let mut fresh = Vec::new();
        let mut bytes = known;
        for (nth, (part, cached)) in parts.iter().zip(cached).enumerate() {
            let of_part = cached.unwrap_or_else(|| {
                let tokens: Arc<[Token]> = tokenizer.encode(part, false).into();
                fresh.extend(keys.get(nth).map(|key| (*key, tokens.clone())));
                tokens
            });
            tokens.extend_from_slice(&of_part);
            bytes += part.len();
            borders.push((bytes, length(&tokens)));
        }
        if prior.is_none()
            && let Some(first) = keys.first()
            && let Some(known) = self.lock().names.get(first)
        {
            names.extend_from_slice(&known);
        }
        key.extend_chain(&mut names, &tokens);
        let place = Some(Place { anchor, marks: marks.clone() });
        let (tokens, names) = (Arc::new(tokens), Arc::new(names));
        let out = Arc::new(Tokenised { text, tokens, names, borders, place });

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

    /// Takes down what was answered to `prompt`, so that the next turn can go on from these very
    /// tokens: all that were generated, but the one that ended the answer.
    pub(crate) fn answered(&self, model: &Processor, prompt: &Weak<Tokenised>, tokens: &[Token]) {
        let Some(prompt) = prompt.upgrade() else { return };
        let (Some(Place { anchor, marks }), Ok(text)) =
            (&prompt.place, tokenize::text(tokens, model.tokenizer()))
        else {
            return;
        };
        // Broken characters have no text of their own, and a turn within an answer would be cut.
        if text.is_empty() || text.contains('\u{fffd}') || marks.has_turn(&text) {
            return;
        }
        let mut inner = self.lock();
        let mut branches = inner.prompts.get(anchor).unwrap_or_default();
        if let Some(branch) =
            branches.iter_mut().find(|branch| Arc::ptr_eq(&branch.prompt, &prompt))
        {
            branch.answered(Arc::new(Written { text, tokens: tokens.to_vec() }));
            inner.put(*anchor, branches);
        }
    }

    fn marks(&self, model: &Processor, mark: PrefixHash) -> Arc<Marks> {
        if let Some(marks) = self.lock().marks.get(&mark) {
            return marks.clone();
        }
        let marks = Arc::new(Marks::of(model));
        let mut inner = self.lock();
        if inner.marks.len() >= MARKS_MAX {
            inner.marks.clear();
        }
        inner.marks.insert(mark, marks.clone());
        marks
    }
}

impl Inner {
    /// Keeps a prompt for the next turn, in the place of the one that it goes on from.
    fn remember(&mut self, anchor: Digest, prior: Option<&Prior>, prompt: &Arc<Tokenised>) {
        let mut branches = self.prompts.get(&anchor).unwrap_or_default();
        let replaced = prior.filter(|prior| prior.is_all).map(|prior| &prior.prompt);
        branches.retain(|branch| !replaced.is_some_and(|old| Arc::ptr_eq(old, &branch.prompt)));
        branches.insert(0, Branch::new(prompt.clone()));
        self.put(anchor, branches);
    }

    /// Puts as many of the branches as there is room for.
    fn put(&mut self, anchor: Digest, mut branches: Vec<Branch>) {
        branches.truncate(BRANCHES_MAX);
        let bytes = |branches: &[Branch]| branches.iter().map(Branch::bytes).sum::<usize>();
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
