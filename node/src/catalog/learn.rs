//! Fetches the cards and tokenizers of models that other nodes serve.

use super::shelf::Shelf;
use super::{Offer, Ready, routing_id};
use crate::clock::Clock;
use crate::node::Node;
use bytes::Bytes;
use futures::FutureExt;
use model::{Date, ModelError, OpenOptions, Processor};
use protocol::card::{BlobDigest, ModelCard};
use protocol::id::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// After a first failure a card is tried again so soon; each failure doubles the pause.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest pause.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// Pause after bytes that are as they are named and cannot be read here: the same would come again,
/// and some MB of it.
const UNREADABLE: Duration = Duration::from_secs(3600);
/// Without news the members are looked at so often, to forget models that have gone.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Cards that are fetched at once; others wait for them.
const AT_ONCE: usize = 4;
/// Longest lists and names of a card.
const LIST_MAX: usize = 1024;
const NAME_MAX: usize = 256;

const TOO_MANY: &str = "the cluster serves more models than a node can offer";

/// A card that could not be learnt.
#[derive(Clone, Copy)]
struct Failing {
    times: u32,
    until: Instant,
}

/// Why a card was not learnt.
#[derive(Debug)]
enum Unlearnt {
    /// It may be another time.
    Passing(String),
    /// This node cannot read what it names.
    Unreadable(String),
}

/// Bytes by name.
struct Blob {
    digest: BlobDigest,
    bytes: Bytes,
    /// Whether they come from the shelf.
    shelved: bool,
}

/// Learns the models of other nodes as they appear. Ends with the node.
pub(crate) async fn run(node: Arc<Node>) {
    let mut failing: BTreeMap<BlobDigest, Failing> = BTreeMap::new();
    let mut busy: BTreeSet<BlobDigest> = BTreeSet::new();
    let mut learning = JoinSet::new();
    loop {
        let unknown = node.unknown_cards();
        failing.retain(|card, _| unknown.contains_key(card));
        let now = Instant::now();
        let mut wake = now + LOOK_EVERY;
        for (card, offer) in unknown {
            match failing.get(&card) {
                _ if busy.contains(&card) || busy.len() >= AT_ONCE => {}
                Some(failing) if failing.until > now => wake = wake.min(failing.until),
                _ => {
                    busy.insert(card);
                    let node = node.clone();
                    let learnt = async move { learn(&node, card, offer).await };
                    learning.spawn(async move { (card, told(learnt).await) });
                }
            }
        }
        tokio::select! {
            () = node.catalog.news.notified() => {}
            () = tokio::time::sleep_until(wake.into()) => node.relist(),
            Some(learnt) = learning.join_next() => {
                let Ok((card, outcome)) = learnt else { continue };
                busy.remove(&card);
                match outcome {
                    Ok(name) => {
                        tracing::info!(model = name, "requests for this model are taken here too");
                        failing.remove(&card);
                        node.relist();
                    }
                    Err(unlearnt) => {
                        let times = failing.get(&card).map_or(0, |failing| failing.times) + 1;
                        let pause = AGAIN_AFTER * 2u32.saturating_pow(times - 1).min(64);
                        let (reason, pause) = match unlearnt {
                            Unlearnt::Passing(reason) => (reason, pause.min(AGAIN_MAX)),
                            Unlearnt::Unreadable(reason) => (reason, UNREADABLE),
                        };
                        let until = Instant::now() + pause;
                        failing.insert(card, Failing { times, until });
                        tracing::warn!(%reason, "a model of other nodes cannot be offered here yet");
                    }
                }
            }
        }
    }
}

/// What comes of learning a card. A defect in it is a failure as others: the card would be taken
/// for one that is being learnt for ever.
async fn told(
    learning: impl Future<Output = Result<String, Unlearnt>>,
) -> Result<String, Unlearnt> {
    match AssertUnwindSafe(learning).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => Err(Unlearnt::Passing("learning a model ended unexpectedly".to_owned())),
    }
}

/// Fetches and reads a model's card and tokenizer; the model's name.
async fn learn(node: &Arc<Node>, digest: BlobDigest, offer: Offer) -> Result<String, Unlearnt> {
    let about = |what: &str| format!("model {}: {what}", offer.name);
    let passing = |what: &str| Unlearnt::Passing(about(what));
    let unreadable = |what: &str| Unlearnt::Unreadable(about(what));
    if !node.catalog.has_room() {
        return Err(passing(TOO_MANY));
    }
    let named = blob(node, digest, &offer.holders).await.map_err(|e| passing(&e))?;
    let card = read(&named.bytes, &offer).map_err(passing)?;
    let tokenizer = blob(node, card.tokenizer, &offer.holders).await.map_err(|e| passing(&e))?;
    let shelf = node.catalog.shelf.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let processor = open(&shelf, &card, [&named, &tokenizer]);
        processor.map(|processor| (card, processor))
    });
    let (card, processor) = reading
        .await
        .map_err(|_| unreadable("its tokenizer cannot be read"))?
        .map_err(|error| unreadable(&error.to_string()))?;
    let ready = Ready::new(&card, Arc::new(processor), Clock::unix().0);
    match node.catalog.learn(digest, ready, offer.context) {
        true => Ok(card.name),
        false => Err(passing(TOO_MANY)),
    }
}

/// Reads a model of which the card and the tokenizer have come, and keeps both over restarts: what
/// cannot be read has no place on the disk. Slow, and blocking.
fn open(
    shelf: &Shelf,
    card: &ModelCard,
    [named, tokenizer]: [&Blob; 2],
) -> Result<Processor, ModelError> {
    let options = OpenOptions { today: Some(Date::of_unix(Clock::unix().0)) };
    let processor = Processor::from_card(card, &tokenizer.bytes, &options)?;
    for blob in [named, tokenizer].into_iter().filter(|blob| !blob.shelved) {
        if let Err(error) = shelf.put(&blob.digest, &blob.bytes) {
            tracing::warn!(%error, "a fetched tokenizer could not be kept on disk");
        }
    }
    Ok(processor)
}

/// Reads a card, and checks that it says what its engine's heartbeat says.
fn read(bytes: &[u8], offer: &Offer) -> Result<ModelCard, &'static str> {
    let card: ModelCard =
        protocol::wire::decode(bytes).map_err(|_| "its card is of another version")?;
    let named = |name: &String| !name.is_empty() && name.len() <= NAME_MAX;
    let lists = [card.aliases.len(), card.stop_tokens.len(), card.specials.len()];
    if !named(&card.name) || !card.aliases.iter().all(named) || lists.iter().any(|n| *n > LIST_MAX)
    {
        return Err("its card has names or lists that are too long");
    }
    if routing_id(&card.routing) != offer.routing || card.name != offer.name {
        return Err("its card is about another model");
    }
    Ok(card)
}

/// Bytes by name: from the shelf, else from the first holder that gives them.
async fn blob(node: &Arc<Node>, digest: BlobDigest, from: &[NodeId]) -> Result<Blob, String> {
    let shelf = node.catalog.shelf.clone();
    let kept = tokio::task::spawn_blocking(move || shelf.get(&digest)).await;
    if let Ok(Some(bytes)) = kept {
        return Ok(Blob { digest, bytes, shelved: true });
    }
    let mut last = "no holder is known".to_owned();
    // Not all nodes ask the same one.
    let first = node.id.0.iter().fold(0usize, |sum, byte| sum + usize::from(*byte));
    let (before, after) = from.split_at(first.checked_rem(from.len()).unwrap_or(0));
    for holder in after.iter().chain(before) {
        let addresses = node.roster.addresses(holder);
        match node.transfer.fetch_blob(*holder, &addresses, digest).await {
            Ok(bytes) => return Ok(Blob { digest, bytes, shelved: false }),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
