//! The models of the cluster as this node can take requests for them: its own, and those of other
//! nodes of which it has the card and the tokenizer.

mod forms;
mod learn;
mod shelf;
#[cfg(test)]
mod tests;

pub(crate) use learn::run;

use bytes::Bytes;
use forms::Forms;
use frontend::{Format, ServedModel};
use model::{Model, Processor};
use protocol::block::StorageId;
use protocol::card::{BlobDigest, ModelCard};
use protocol::event::{EngineReport, MemberState, MemberView};
use protocol::hash::RoutingNamespace;
use protocol::id::NodeId;
use shelf::Shelf;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Models of other nodes that are kept ready; a tokenizer takes up to some hundred MB of memory.
const LEARNT_MAX: usize = 64;
/// For so long after its start, or after a new member was admitted, a node does not say that a model
/// does not exist.
const HEARING: Duration = Duration::from_secs(5);
/// A model that nobody has offered for so long is forgotten; until then requests for it are told to
/// come again, as its nodes may be restarting.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Digest of a namespace, equal on nodes whose prefix names agree.
pub(crate) fn routing_id(routing: &RoutingNamespace) -> [u8; 32] {
    *blake3::hash(&protocol::wire::encode(routing).unwrap_or_default()).as_bytes()
}

/// A model, ready to take requests for.
#[derive(Clone)]
struct Ready {
    name: String,
    aliases: Vec<String>,
    processor: Arc<Processor>,
    format: Format,
    routing: RoutingNamespace,
    /// [`routing_id`] of it.
    id: [u8; 32],
    /// Seconds since the Unix epoch.
    created: u64,
}

impl Ready {
    fn new(card: &ModelCard, processor: Arc<Processor>, created: u64) -> Self {
        Self {
            name: card.name.clone(),
            aliases: card.aliases.clone(),
            // Another version may know formats that this one does not.
            format: card.format.parse().unwrap_or_else(|_| Format::of(&processor)),
            processor,
            routing: card.routing.clone(),
            id: routing_id(&card.routing),
            created,
        }
    }

    fn served(&self, context: u32) -> ServedModel {
        ServedModel {
            name: self.name.clone(),
            aliases: self.aliases.clone(),
            model: self.processor.clone(),
            context,
            created: self.created,
            format: self.format,
        }
    }
}

/// The model of this node's own engine.
pub(crate) struct Own {
    ready: Ready,
    /// Longest prompt plus answer in tokens.
    context: u32,
    card: BlobDigest,
    /// What other nodes may ask for.
    blobs: BTreeMap<BlobDigest, Bytes>,
}

impl Own {
    /// `model`, served under `name` and `aliases` since `created` (Unix seconds).
    pub(crate) fn new(
        model: &Model,
        (name, aliases): (&str, &[String]),
        format: Format,
        context: u32,
        created: u64,
    ) -> Self {
        let (card, tokenizer) = model.card(name, aliases, format.name());
        let ready = Ready::new(&card, model.processor().clone(), created);
        let mut own = Self { ready, context, card: BlobDigest([0; 32]), blobs: BTreeMap::new() };
        match card.encode() {
            None => tracing::warn!("the chat template is too large to be told to other nodes"),
            Some(bytes) => {
                own.card = BlobDigest::of(&bytes);
                own.blobs.insert(own.card, bytes.into());
                own.blobs.insert(card.tokenizer, Bytes::from_owner(tokenizer));
            }
        }
        own
    }
}

/// A model of other nodes.
struct Learnt {
    ready: Ready,
    offered: Instant,
    /// The longest that its engines take, or took last: tokens of prompt plus answer.
    context: u32,
}

/// What can be asked for now.
#[derive(Default)]
struct Listing {
    served: Arc<[ServedModel]>,
    /// Namespaces of the same models, with their digests.
    routing: Vec<(RoutingNamespace, [u8; 32])>,
    /// Names of models whose cards are on their way.
    awaited: BTreeSet<String>,
}

/// The models of the cluster.
pub(crate) struct Catalog {
    own: Option<Own>,
    learnt: Mutex<BTreeMap<BlobDigest, Learnt>>,
    listing: RwLock<Arc<Listing>>,
    shelf: Arc<Shelf>,
    /// Until then members may not have been heard that serve models.
    hearing_until: Mutex<Instant>,
    /// Cards may have come that nobody has looked for yet.
    news: Notify,
    forms: Forms,
}

/// A card that engines of living members name, and who has it.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    routing: [u8; 32],
    name: String,
    /// The longest that these engines take: tokens of prompt plus answer.
    context: u32,
    holders: Vec<NodeId>,
}

/// Engines of members that serve, or will again in a moment.
fn offering(view: &MemberView) -> &[EngineReport] {
    match view.state {
        MemberState::Alive | MemberState::Suspect | MemberState::Draining => &view.engines,
        MemberState::Left | MemberState::Dead => &[],
    }
}

/// Whether two views of a member offer different models, or their blocks in different forms.
pub(crate) fn offers_differ(before: Option<&MemberView>, now: &MemberView) -> bool {
    let said = |view: &MemberView| -> Vec<(BlobDigest, [u8; 32], u32, StorageId)> {
        offering(view).iter().map(|e| (e.card, e.routing, e.context, e.storage)).collect()
    };
    before.map(said).unwrap_or_default() != said(now)
}

impl Catalog {
    /// A catalogue that knows `own`; what it learns is kept in `folder`.
    /// `others` says whether there are other members.
    pub(crate) fn new(own: Option<Own>, folder: &Path, others: bool) -> Self {
        let catalog = Self {
            own,
            learnt: Mutex::default(),
            listing: RwLock::default(),
            shelf: Arc::new(Shelf::open(folder)),
            hearing_until: Mutex::new(Instant::now()),
            news: Notify::new(),
            forms: Forms::default(),
        };
        if others {
            catalog.hear();
        }
        catalog.relist(&BTreeMap::new());
        catalog
    }

    fn hearing(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.hearing_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There are members that have yet to tell what they serve.
    pub(crate) fn hear(&self) {
        *self.hearing() = Instant::now() + HEARING;
    }

    /// The name of the card of this node's model; zero without one.
    pub(crate) fn own_card(&self) -> BlobDigest {
        self.own.as_ref().map_or(BlobDigest([0; 32]), |own| own.card)
    }

    fn listing(&self) -> Arc<Listing> {
        self.listing.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What can be asked for now; this node's own model first.
    pub(crate) fn models(&self) -> Arc<[ServedModel]> {
        self.listing().served.clone()
    }

    /// Whether a model of this name, or any, has yet to be learnt.
    pub(crate) fn awaits(&self, model: Option<&str>) -> bool {
        let listing = self.listing();
        if Instant::now() < *self.hearing() {
            return model.is_some() || listing.served.is_empty();
        }
        model.map_or(!listing.awaited.is_empty(), |model| listing.awaited.contains(model))
    }

    /// The namespace of a model that was listed; `None` when it is not any more.
    pub(crate) fn namespace(&self, served: &ServedModel) -> Option<RoutingNamespace> {
        let listing = self.listing();
        // Another model may have its name by now: its names must not be given to this one's tokens.
        let same = |listed: &ServedModel| Arc::ptr_eq(&listed.model, &served.model);
        let at = listing.served.iter().position(same)?;
        listing.routing.get(at).map(|(namespace, _)| namespace.clone())
    }

    /// The namespace of the listed model of this name, and its digest.
    pub(crate) fn routing(&self, model: &str) -> Option<(RoutingNamespace, [u8; 32])> {
        let listing = self.listing();
        let at = listing.served.iter().position(|served| served.name == model)?;
        listing.routing.get(at).cloned()
    }

    /// The digests of all listed namespaces.
    pub(crate) fn routed(&self) -> Vec<[u8; 32]> {
        self.listing().routing.iter().map(|(_, id)| *id).collect()
    }

    /// Bytes that another node asks for. Reads a file: call it off the async threads.
    pub(crate) fn blob(&self, digest: &BlobDigest) -> Option<Bytes> {
        let own = self.own.as_ref().and_then(|own| own.blobs.get(digest)).cloned();
        own.or_else(|| self.shelf.get(digest))
    }

    fn learnt(&self) -> std::sync::MutexGuard<'_, BTreeMap<BlobDigest, Learnt>> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists anew after `views` have changed, and looks for cards that are not known.
    pub(crate) fn relist(&self, views: &BTreeMap<NodeId, MemberView>) {
        self.forms.look(views.values().flat_map(offering));
        let mut learnt = self.learnt();
        let now = Instant::now();
        // Engines per card; the longest context per namespace.
        let mut engines: BTreeMap<BlobDigest, usize> = BTreeMap::new();
        let mut contexts: BTreeMap<[u8; 32], u32> = BTreeMap::new();
        let mut awaited = BTreeSet::new();
        for report in views.values().flat_map(offering) {
            if let Some(known) = learnt.get_mut(&report.card) {
                known.offered = now;
            } else if report.card != BlobDigest([0; 32]) && report.card != self.own_card() {
                awaited.insert(report.model.clone());
            }
            *engines.entry(report.card).or_default() += 1;
            let longest = contexts.entry(report.routing).or_default();
            *longest = report.context.max(*longest);
        }
        for known in learnt.values_mut() {
            // One whose engines have gone keeps its context.
            let longest = contexts.entry(known.ready.id).or_insert(known.context);
            known.context = *longest;
        }
        learnt.retain(|_, known| now.duration_since(known.offered) < FORGOTTEN_AFTER);
        // Of two models with one name the one with more engines is listed.
        let count = |card| engines.get(card).copied().unwrap_or_default();
        let mut offered: Vec<(usize, &Ready)> =
            learnt.iter().map(|(card, known)| (count(card), &known.ready)).collect();
        offered.sort_by(|(a, ready), (b, other)| b.cmp(a).then(ready.id.cmp(&other.id)));
        let mut list: Vec<Ready> = self.own.iter().map(|own| own.ready.clone()).collect();
        for (engines, ready) in offered {
            match list.iter_mut().find(|listed| listed.name == ready.name) {
                None => list.push(ready.clone()),
                Some(same) if same.id == ready.id => {
                    let new = ready.aliases.iter().filter(|a| !same.aliases.contains(a));
                    same.aliases.extend(new.cloned().collect::<Vec<_>>());
                }
                Some(_) if engines == 0 => {}
                Some(_) => tracing::warn!(
                    model = ready.name,
                    "nodes serve different models under this name; one of them is not listed here"
                ),
            }
        }
        // This node's own model comes first, the others in the order of their names.
        let own = usize::from(self.own.is_some()).min(list.len());
        if let Some(others) = list.get_mut(own..) {
            others.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let context = |ready: &Ready| {
            let own = self.own.as_ref().filter(|own| own.ready.id == ready.id);
            let own = own.map_or(0, |own| own.context);
            contexts.get(&ready.id).copied().unwrap_or_default().max(own)
        };
        let listing = Listing {
            served: list.iter().map(|ready| ready.served(context(ready))).collect(),
            routing: list.iter().map(|ready| (ready.routing.clone(), ready.id)).collect(),
            awaited,
        };
        let wanted = !listing.awaited.is_empty();
        *self.listing.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(listing);
        if wanted {
            self.news.notify_one();
        }
    }

    /// Cards that are offered in `views` and not known here.
    pub(crate) fn unknown(
        &self,
        views: &BTreeMap<NodeId, MemberView>,
    ) -> BTreeMap<BlobDigest, Offer> {
        let learnt = self.learnt();
        let mut unknown: BTreeMap<BlobDigest, Offer> = BTreeMap::new();
        for (node, report) in views.values().flat_map(|v| offering(v).iter().map(|e| (v.node, e))) {
            let card = report.card;
            if card == BlobDigest([0; 32]) || card == self.own_card() || learnt.contains_key(&card)
            {
                continue;
            }
            let offer = unknown.entry(card).or_insert_with(|| Offer {
                routing: report.routing,
                name: report.model.clone(),
                context: 0,
                holders: Vec::new(),
            });
            offer.context = offer.context.max(report.context);
            offer.holders.push(node);
        }
        unknown
    }

    /// Whether another card would be taken in.
    fn has_room(&self) -> bool {
        self.learnt().len() < LEARNT_MAX
    }

    /// Takes a card in, whose engines took `context` tokens when they were last heard of; false
    /// when there are too many.
    fn learn(&self, card: BlobDigest, ready: Ready, context: u32) -> bool {
        let mut learnt = self.learnt();
        if learnt.len() >= LEARNT_MAX {
            return false;
        }
        learnt.insert(card, Learnt { ready, offered: Instant::now(), context });
        true
    }
}
