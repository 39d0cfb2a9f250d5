//! Speculative prefill: when an answer has ended, the next turn's known prefix is prefilled.
//!
//! What the next request will begin with is the history with this answer in it, as the template
//! writes histories: often not what the engine holds, since templates strip reasoning from earlier
//! turns. It is served like a prompt that wants one token, behind everything else, and nobody reads
//! the token. Few at a time, and never waiting for each other: what comes too late is worth nothing.

use crate::ask::{self, Ask};
use crate::cluster::{Cluster, ServedModel, Want};
use crate::error::ApiError;
use crate::prompt::cache::PrefixCache;
use crate::prompt::client::Client;
use crate::prompt::session::Session;
use crate::prompt::{self, Who};
use crate::stream::{Ending, Piece, Reason};
use model::Message;
use protocol::hash::RoutingKey;
use protocol::id::{RequestId, TenantId};
use protocol::prompt::StreamItem;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How many at once on one node.
pub(crate) const AT_ONCE: usize = 4;
/// How long one may take: the next turn is under way by then.
const WITHIN: Duration = Duration::from_secs(60);
/// Behind everything that somebody waits for.
const PRIORITY: i32 = -1000;

/// A turn whose end is waited for.
pub(crate) struct Ahead {
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) cache: Arc<PrefixCache>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) ask: Ask,
    pub(crate) served: ServedModel,
    pub(crate) key: RoutingKey,
    pub(crate) tenant: TenantId,
    pub(crate) session: Session,
    pub(crate) said: Said,
}

/// An answer as its pieces make it.
#[derive(Default)]
pub(crate) struct Said {
    text: String,
    reasoning: String,
    calls: Vec<(String, String)>,
}

impl Said {
    fn into_message(self) -> Message {
        let call = |(name, arguments)| ask::tool_call(name, Value::String(arguments));
        ask::assistant(self.text, self.reasoning, self.calls.into_iter().map(call).collect())
    }
}

impl Ahead {
    /// Takes a piece of the answer.
    pub(crate) fn piece(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(more) => self.said.text.push_str(more),
            Piece::Reasoning(more) => self.said.reasoning.push_str(more),
            Piece::CallStart { name, .. } => self.said.calls.push((name.clone(), String::new())),
            Piece::CallArguments { fragment, .. } => {
                if let Some((_, arguments)) = self.said.calls.last_mut() {
                    arguments.push_str(fragment);
                }
            }
        }
    }

    /// The answer is over: prefills, unless no next turn goes on from it or others are at it.
    pub(crate) fn ended(self, ending: &Ending) {
        if matches!(ending.reason, Reason::Length | Reason::ContextFull) {
            return;
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            if tokio::time::timeout(WITHIN, self.prefill()).await.is_err() {
                tracing::debug!("a speculative prefill took too long");
            }
            drop(permit);
        });
    }

    async fn prefill(self) {
        let cluster = self.cluster.clone();
        let Ok(Ok(prompt)) = tokio::task::spawn_blocking(move || self.prompt()).await else {
            return;
        };
        let Ok(mut served) = cluster.serve(prompt, Want::default()).await else { return };
        while let Some(item) = served.items.recv().await {
            if matches!(
                item,
                StreamItem::Tokens(_) | StreamItem::Finished(_) | StreamItem::Failed(_)
            ) {
                return;
            }
        }
    }

    fn prompt(self) -> Result<protocol::prompt::Prompt, ApiError> {
        let Self { cluster, cache, mut ask, served, key, tenant, session, mut said, .. } = self;
        if ask.continues.take().is_some()
            && let Some(last) = ask.messages.pop()
            && let Some(begun) = last["content"].as_str()
        {
            said.text.insert_str(0, begun);
        }
        ask.messages.push(said.into_message());
        ask.history_only = true;
        ask.max_tokens = Some(1);
        ask.nvext.hints.priority = None;
        ask.nvext.hints.latency_sensitivity = None;
        ask.nvext.hints.strict_priority = None;
        ask.nvext.session_final = None;
        let id = RequestId(cluster.fresh_id());
        let who = Who { id, tenant, session, seed: 0, priority: PRIORITY };
        prompt::prepare(&ask, who, &served, &key, &cache, &Client::stays())
            .map(|prepared| prepared.prompt)
    }
}
