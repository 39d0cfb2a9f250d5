//! Bodies that begin as earlier ones did.
//!
//! An agent sends its whole history with every turn, mostly in the very bytes of the turn before. A
//! JSON reader that has come to the end of an element of the history is in a state that depends on
//! nothing but the bytes so far. So where two bodies have all bytes up to such an end in common, what
//! was read of these elements of the one is what is read of them in the other: only what follows is
//! read anew. Whatever goes wrong then is found again, and told, by reading the whole body.

pub(crate) mod scan;

use crate::ask::{Ask, Pin};
use crate::error::ApiError;
use crate::lru::{Digest, Lru};
use crate::pairs::{self, Pairs};
use crate::prompt::cache::common;
use crate::weight::weight;
use bytes::Bytes;
use model::Message;
use protocol::id::TenantId;
use scan::Elements;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bodies up to this many bytes are read as quickly as they are looked up.
const SMALL: usize = 16 << 10;
/// The list of a body.
const FIELD: &str = "messages";
/// Elements by whose bytes, and all before them, earlier bodies are found: instructions and the first
/// question.
const BEGINNING: usize = 2;
/// Earlier bodies with one beginning.
const BRANCHES_MAX: usize = 16;
/// A body that has all but so many elements in common with an earlier one goes on from it: clients
/// move their marks along, which changes the last ones.
const CHANGED_MAX: usize = 4;

/// Where an element ends: so many messages and pins, and so much of the pairs.
#[derive(Clone, Copy, Default)]
struct End {
    messages: usize,
    pins: usize,
    pairs: pairs::Mark,
    /// Bytes that these messages take.
    bytes: usize,
}

/// The history of a body, element by element.
#[derive(Default)]
pub(crate) struct History {
    /// The messages of all elements.
    pub(crate) messages: Vec<Message>,
    /// Their calls of tools, and the results.
    pub(crate) pairs: Pairs,
    /// Their pins, counted from the first of these messages.
    pub(crate) pins: Vec<Pin>,
    /// How much there is up to each element's end.
    ends: Vec<End>,
}

impl History {
    /// Elements so far.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// About the bytes that its messages take.
    fn bytes(&self) -> usize {
        self.ends.last().map_or(0, |end| end.bytes)
    }

    /// All of an element has been added.
    pub(crate) fn end_element(&mut self) {
        let before = self.ends.last().copied().unwrap_or_default();
        let new = self.messages.iter().skip(before.messages).map(|message| weight(message));
        let bytes = before.bytes + new.sum::<usize>();
        let (messages, pins) = (self.messages.len(), self.pins.len());
        self.ends.push(End { messages, pins, pairs: self.pairs.mark(), bytes });
    }

    /// The first `elements` elements.
    fn first(&self, elements: usize) -> Self {
        let ends: Vec<_> = self.ends.iter().take(elements).copied().collect();
        let end = ends.last().copied().unwrap_or_default();
        Self {
            messages: self.messages.iter().take(end.messages).cloned().collect(),
            pairs: self.pairs.first(end.pairs),
            pins: self.pins.iter().take(end.pins).cloned().collect(),
            ends,
        }
    }
}

/// A body that was read.
struct Known {
    body: Bytes,
    elements: Elements,
    history: History,
    /// The tools that the prompt shows.
    tools: Arc<[Message]>,
    bytes: usize,
}

impl Known {
    /// About the memory that it takes.
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whose list of messages a body holds: the same bytes mean one thing here and another there.
#[derive(Clone, Copy)]
pub(crate) enum List {
    /// Of Chat Completions.
    Chat,
    /// Of Messages.
    Messages,
}

impl List {
    /// What tells it from the others.
    fn tag(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
        }
    }
}

/// Earlier bodies. Bounded; forgets what was used longest ago.
pub(crate) struct Bodies(Mutex<Lru<Vec<Arc<Known>>>>);

impl Bodies {
    /// At most `bytes` bytes of earlier bodies and what was read of them.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Mutex::new(Lru::new(bytes)))
    }

    fn lock(&self) -> MutexGuard<'_, Lru<Vec<Arc<Known>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a body of `tenant` whose history is the list `list`. `read` takes what is known of the
    /// history already and a body without it.
    pub(crate) fn read(
        &self,
        tenant: &TenantId,
        body: &Bytes,
        list: List,
        read: impl Fn(&[u8], &mut History) -> Result<Ask, ApiError>,
    ) -> Result<Ask, ApiError> {
        let place = (body.len() > SMALL).then(|| place(tenant, body, list)).flatten();
        let Some(place) = place else { return read(body, &mut History::default()) };
        let branches = self.lock().get(&place).unwrap_or_default();
        let shared = |known: &Arc<Known>| {
            let common = common(&known.body, body);
            (known.elements.ends.partition_point(|end| *end <= common), known.clone())
        };
        let best = branches.iter().map(shared).max_by_key(|(shared, _)| *shared);
        let best = best.filter(|(shared, _)| *shared > 0);
        let gone_on = best.as_ref().and_then(|(shared, known)| go_on(known, *shared, body, &read));
        let (mut ask, elements, history) = match gone_on {
            Some(read) => read,
            None => {
                let mut history = History::default();
                let ask = read(body, &mut history)?;
                let elements = scan::elements(body, FIELD, usize::MAX);
                let elements = elements.filter(|found| found.ends.len() == history.len());
                let Some(elements) = elements else { return Ok(ask) };
                (ask, elements, history)
            }
        };
        // Tools that are as they were have been made ready for templates.
        let same = best.as_ref().filter(|(_, known)| known.tools == ask.tools);
        let tools = same.map_or_else(|| ask.tools.clone(), |(_, known)| known.tools.clone());
        ask.tools = tools.clone();
        let of_tools: usize = tools.iter().map(|tool| weight(tool)).sum();
        let bytes = body.len() + history.bytes() + of_tools;
        let known = Arc::new(Known { body: body.clone(), elements, history, tools, bytes });
        let replaced = best.filter(|(shared, earlier)| {
            let length = earlier.history.len();
            shared + CHANGED_MAX >= length && known.history.len() >= length
        });
        self.remember(place, replaced.map(|(_, earlier)| earlier), known);
        Ok(ask)
    }

    /// Keeps a body for the next turn, in the place of the one that it goes on from.
    fn remember(&self, place: Digest, replaced: Option<Arc<Known>>, known: Arc<Known>) {
        let mut bodies = self.lock();
        let mut branches = bodies.get(&place).unwrap_or_default();
        branches.retain(|branch| !replaced.as_ref().is_some_and(|old| Arc::ptr_eq(old, branch)));
        branches.insert(0, known);
        branches.truncate(BRANCHES_MAX);
        let bytes = |branches: &[Arc<Known>]| branches.iter().map(|b| b.bytes()).sum::<usize>();
        while branches.len() > 1 && bytes(&branches) > bodies.largest() {
            branches.pop();
        }
        let bytes = bytes(&branches);
        bodies.insert(place, branches, bytes);
    }
}

/// Where bodies are remembered that begin as this one does.
fn place(tenant: &TenantId, body: &[u8], list: List) -> Option<Digest> {
    let elements = scan::elements(body, FIELD, BEGINNING)?;
    let beginning = body.get(..*elements.ends.last()?)?;
    let mut hasher = blake3::Hasher::new();
    for name in [tenant.0.as_str(), list.tag()] {
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
    }
    Some(*hasher.update(beginning).finalize().as_bytes())
}

/// Reads what follows the first `shared` elements, which are those of `known`.
fn go_on(
    known: &Known,
    shared: usize,
    body: &[u8],
    read: impl Fn(&[u8], &mut History) -> Result<Ask, ApiError>,
) -> Option<(Ask, Elements, History)> {
    let end = *known.elements.ends.get(shared.checked_sub(1)?)?;
    let rest = end + scan::separator(body.get(end..)?)?;
    let first = known.elements.first;
    let short = [body.get(..first)?, body.get(rest..)?].concat();
    let mut history = known.history.first(shared);
    let ask = read(&short, &mut history).ok()?;
    let ends = known.elements.ends.iter().take(shared).copied();
    let new = scan::elements(&short, FIELD, usize::MAX)?;
    let new = new.ends.iter().map(|end| end - first + rest);
    let elements = Elements { first, ends: ends.chain(new).collect() };
    (elements.ends.len() == history.len()).then_some((ask, elements, history))
}

#[cfg(test)]
mod tests;
