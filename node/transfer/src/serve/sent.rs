//! What members keep of the prompts that were sent to them.

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use protocol::hash::{GRANULE, PrefixHash};
use protocol::id::NodeId;
use protocol::wire::serve::{Beginning, Line, ServeAsk, ServeRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prompts of fewer granules are not kept: they are as quickly sent.
pub(super) const LEAST: usize = 64;
/// Places in prompts that are remembered, of all members together; a prompt has a dozen.
const PLACES_MAX: u64 = 32 << 10;
/// A prompt that has all but so many granules of an earlier one goes on from it: the beginning of the
/// answer, at its end, may be written otherwise in a history.
const CHANGED_MAX: usize = 8;

/// A prompt that a member was sent.
#[derive(Clone, Copy)]
struct Known {
    line: Line,
    /// Its full granules, when this place was remembered.
    granules: usize,
}

/// Places in prompts by member and name.
pub(crate) struct Sent {
    places: Cache<(NodeId, PrefixHash), Known>,
    lines: AtomicU64,
}

/// A request as it is sent, and what is to be remembered when the member has read it.
pub(crate) struct Parcel {
    node: NodeId,
    names: Arc<Vec<PrefixHash>>,
    beginning: Option<Beginning>,
    keep_as: Option<Line>,
}

impl Sent {
    pub(crate) fn new() -> Self {
        let places = Cache::builder().max_capacity(PLACES_MAX);
        let places = places.eviction_policy(EvictionPolicy::lru()).build();
        Self { places, lines: AtomicU64::new(0) }
    }

    /// How a request goes to a member: short, if that has the beginning of its prompt.
    pub(crate) fn parcel(&self, node: NodeId, request: &ServeRequest) -> Parcel {
        let names = request.prompt.prefix.clone();
        // The longest: a name stands for all before it.
        let found = (LEAST..=names.len()).rev().find_map(|granules| {
            let last = *names.get(granules - 1)?;
            Some((granules, last, self.places.get(&(node, last))?))
        });
        let whole = request.prompt.tokens.len() >= names.len() * GRANULE;
        let (beginning, keep_as) = match found.filter(|_| whole) {
            _ if names.len() < LEAST => (None, None),
            None => (None, Some(self.new_line())),
            Some((granules, last, Known { line, granules: length })) => {
                let goes_on = granules + CHANGED_MAX >= length;
                let granules = u32::try_from(granules).unwrap_or(0);
                let keep_as = if goes_on { line } else { self.new_line() };
                (Some(Beginning { line, granules, last }), Some(keep_as))
            }
        };
        Parcel { node, names, beginning, keep_as }
    }

    fn new_line(&self) -> Line {
        Line(self.lines.fetch_add(1, Ordering::Relaxed))
    }

    /// The member does not know the beginning: all is to be sent, and kept beside what it has.
    pub(crate) fn unknown(&self, parcel: &mut Parcel) {
        parcel.beginning = None;
        parcel.keep_as = parcel.keep_as.map(|_| self.new_line());
    }

    /// The member has read the request.
    pub(crate) fn arrived(&self, parcel: &Parcel) {
        let Some(line) = parcel.keep_as else { return };
        let granules = parcel.names.len();
        // Later prompts may be cut short, or part from this one, anywhere.
        let steps = std::iter::successors(Some(1usize), |step| step.checked_mul(2));
        let back = std::iter::once(0).chain(steps.take_while(|step| *step < granules));
        for place in back.map_while(|back| (granules - back).checked_sub(1)) {
            if let Some(name) = parcel.names.get(place) {
                self.places.insert((parcel.node, *name), Known { line, granules });
            }
        }
    }
}

impl Parcel {
    /// Whether the member must have the beginning.
    pub(crate) fn is_short(&self) -> bool {
        self.beginning.is_some()
    }

    /// All of the request, as a frame's value.
    pub(crate) fn whole<'a>(&self, request: &'a ServeRequest) -> ServeAsk<&'a ServeRequest> {
        ServeAsk { beginning: None, keep_as: self.keep_as, request }
    }

    /// The request behind what the member has.
    pub(crate) fn short(&self, request: &ServeRequest) -> ServeAsk {
        let Self { beginning, keep_as, .. } = *self;
        let granules = beginning.map_or(0, |beginning| beginning.granules as usize);
        let mut request = request.clone();
        let prompt = &mut request.prompt;
        let tokens = prompt.tokens.get(granules * GRANULE..).unwrap_or_default().to_vec();
        let names = prompt.prefix.get(granules..).unwrap_or_default().to_vec();
        (prompt.tokens, prompt.prefix) = (tokens.into(), names.into());
        ServeAsk { beginning, keep_as, request }
    }
}
