//! What the frontend asks of the node: which models, where a prompt runs, what comes back.

use futures::future::BoxFuture;
use protocol::hash::{ClientSalt, RoutingKey};
use protocol::id::{NodeId, TenantId};
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal, StreamItem};
use std::sync::Arc;

/// The cluster as the frontend sees it.
pub trait Cluster: Send + Sync + 'static {
    /// The models that can be asked for now, here or on other nodes.
    fn models(&self) -> Vec<ServedModel>;

    /// Whether a request could be served now; otherwise why not, in words for people.
    fn readiness(&self) -> Result<(), String>;

    /// The key of prefix names for one model, tenant and client salt; `None` when the model has
    /// just gone.
    fn routing_key(
        &self,
        model: &str,
        tenant: &TenantId,
        client_salt: Option<&ClientSalt>,
    ) -> Option<RoutingKey>;

    /// Places and serves a prompt. Dropping the future or the receiver cancels.
    fn serve(&self, prompt: Prompt, want: Want) -> BoxFuture<'static, Result<Served, Refusal>>;

    /// A secret of the cluster for this tenant, under which clients keep sealed reasoning: the same
    /// on all nodes and over restarts.
    fn sealing_secret(&self, tenant: &TenantId) -> [u8; 32];

    /// This node, as `nvext.route` names it.
    fn entry_node(&self) -> String;

    /// Seconds since the Unix epoch, for `created` fields only.
    fn now_unix(&self) -> u64;

    /// A fresh random number: request ids and seeds.
    fn fresh_id(&self) -> u128;
}

/// A model as it is served.
#[derive(Clone)]
pub struct ServedModel {
    /// Its name, as listed.
    pub name: String,
    /// Other names it answers to; not listed.
    pub aliases: Vec<String>,
    /// Tokenizer and template.
    pub model: Arc<model::Model>,
    /// Longest prompt plus answer, in tokens.
    pub context: u32,
    /// When it began to be served, in seconds since the Unix epoch.
    pub created: u64,
}

/// What the caller wants told beside the tokens; never changes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Want {
    /// The client reads a stream, so that time to first token matters.
    pub stream: bool,
    /// Times were asked for (`nvext.extra_fields: ["timing"]`).
    pub timing: bool,
    /// The route was asked for (`nvext.extra_fields: ["route"]`).
    pub route: bool,
    /// Only this node will do (`nvext.target`, a debugging aid).
    pub target: Option<NodeId>,
}

/// A request that found its place.
pub struct Served {
    /// Its stream: `Started`, `Tokens`…, then `Finished` or `Failed`. Bounded by whoever made it.
    pub items: tokio::sync::mpsc::Receiver<StreamItem>,
    /// Who serves it, as `nvext.route` names it.
    pub serving_node: String,
    /// How it was chosen, in words for people.
    pub outcome: String,
    /// The placement.
    pub placed: Placed,
}
