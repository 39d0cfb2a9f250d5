//! Fetches the cards and tokenizers of models that other nodes serve.

use super::{Offer, Ready, routing_id};
use crate::clock::Clock;
use crate::node::Node;
use bytes::Bytes;
use model::{Date, OpenOptions, Processor};
use protocol::card::{BlobDigest, ModelCard};
use protocol::id::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// After a first failure a card is tried again so soon; each failure doubles the pause.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest pause.
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// Without news the members are looked at so often, to forget models that have gone.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Cards that are fetched at once; others wait for them.
const AT_ONCE: usize = 4;
/// Longest lists and names of a card.
const LIST_MAX: usize = 1024;
const NAME_MAX: usize = 256;

/// A card that could not be learnt.
#[derive(Clone, Copy)]
struct Failing {
    times: u32,
    until: Instant,
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
                    learning.spawn(async move { (card, learn(&node, card, offer).await) });
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
                    Err(reason) => {
                        let times = failing.get(&card).map_or(0, |failing| failing.times) + 1;
                        let pause = AGAIN_AFTER * 2u32.saturating_pow(times - 1).min(64);
                        let until = Instant::now() + pause.min(AGAIN_MAX);
                        failing.insert(card, Failing { times, until });
                        tracing::warn!(%reason, "a model of other nodes cannot be offered here yet");
                    }
                }
            }
        }
    }
}

/// Fetches and reads a model's card and tokenizer; the model's name.
async fn learn(node: &Arc<Node>, digest: BlobDigest, offer: Offer) -> Result<String, String> {
    let about = |what: &str| format!("model {}: {what}", offer.name);
    let bytes = blob(node, digest, &offer.holders).await.map_err(|e| about(&e))?;
    let card = read(&bytes, &offer).map_err(about)?;
    let tokenizer = blob(node, card.tokenizer, &offer.holders).await.map_err(|e| about(&e))?;
    let options = OpenOptions { today: Some(Date::of_unix(Clock::unix().0)) };
    let reading = tokio::task::spawn_blocking(move || {
        let processor = Processor::from_card(&card, &tokenizer, &options);
        processor.map(|processor| (card, processor))
    });
    let (card, processor) = reading
        .await
        .map_err(|_| about("its tokenizer cannot be read"))?
        .map_err(|error| about(&error.to_string()))?;
    let ready = Ready::new(&card, Arc::new(processor), Clock::unix().0);
    match node.catalog.learn(digest, ready) {
        true => Ok(card.name),
        false => Err(about("the cluster serves more models than a node can offer")),
    }
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
async fn blob(node: &Arc<Node>, digest: BlobDigest, from: &[NodeId]) -> Result<Bytes, String> {
    let shelf = node.catalog.shelf.clone();
    let kept = tokio::task::spawn_blocking(move || shelf.get(&digest)).await;
    if let Ok(Some(bytes)) = kept {
        return Ok(bytes);
    }
    let mut last = "no holder is known".to_owned();
    // Not all nodes ask the same one.
    let first = node.id.0.iter().fold(0usize, |sum, byte| sum + usize::from(*byte));
    let (before, after) = from.split_at(first.checked_rem(from.len()).unwrap_or(0));
    for holder in after.iter().chain(before) {
        let addresses = node.roster.addresses(holder);
        match node.transfer.fetch_blob(*holder, &addresses, digest).await {
            Ok(bytes) => {
                let (shelf, kept) = (node.catalog.shelf.clone(), bytes.clone());
                let put = tokio::task::spawn_blocking(move || shelf.put(&digest, &kept)).await;
                if let Ok(Err(error)) = put {
                    tracing::warn!(%error, "a fetched tokenizer could not be kept on disk");
                }
                return Ok(bytes);
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
