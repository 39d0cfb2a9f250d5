//! What the frontend asks of the node: which models, where a prompt runs, what comes back.

use crate::format::Format;
use futures::future::BoxFuture;
use protocol::hash::{ClientSalt, RoutingKey};
use protocol::id::{NodeId, TenantId};
use protocol::plan::Placed;
use protocol::prompt::{Prompt, Refusal, StreamItem};
use protocol::time::Span;
use std::sync::Arc;

/// The cluster as the frontend sees it.
pub trait Cluster: Send + Sync + 'static {
    /// The models that can be asked for now, here or on other nodes.
    fn models(&self) -> Arc<[ServedModel]>;

    /// Whether a model of this name (or any, without one) is served by another node of which this
    /// one has yet to fetch the tokenizer.
    fn awaits(&self, model: Option<&str>) -> bool;

    /// Whether a request could be served now; otherwise why not, in words for people.
    fn readiness(&self) -> Result<(), String>;

    /// The key of prefix names for a model of [`Self::models`], tenant and client salt; `None` when
    /// the model has just gone.
    fn routing_key(
        &self,
        served: &ServedModel,
        tenant: &TenantId,
        client_salt: Option<&ClientSalt>,
    ) -> Option<RoutingKey>;

    /// Places and serves a prompt. Dropping the future or the receiver cancels.
    fn serve(&self, prompt: Prompt, want: Want) -> BoxFuture<'static, Result<Served, Refusal>>;

    /// A secret of the cluster for this tenant, under which clients keep sealed reasoning: the same
    /// on all nodes and over restarts.
    fn sealing_secret(&self, tenant: &TenantId) -> [u8; 32];

    /// Keeps a record until `ttl` is over, on several nodes; an older value is replaced.
    fn keep(
        &self,
        name: RecordName,
        value: Vec<u8>,
        ttl: Span,
    ) -> BoxFuture<'static, Result<Kept, Unkept>>;

    /// A record that is kept; `None` when there is none, which the cluster then knows for sure.
    fn recall(&self, name: RecordName) -> BoxFuture<'static, Result<Option<Vec<u8>>, Unkept>>;

    /// Removes a record; whether there was one.
    fn forget(&self, name: RecordName) -> BoxFuture<'static, Result<bool, Unkept>>;

    /// This node, as `nvext.route` names it.
    fn entry_node(&self) -> String;

    /// Seconds since the Unix epoch, for `created` fields only.
    fn now_unix(&self) -> u64;

    /// A fresh random number: request ids and seeds.
    fn fresh_id(&self) -> u128;
}

/// The name of a record that the cluster keeps; it says nothing about what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordName {
    /// Records of one place are on the same nodes.
    pub place: [u8; 16],
    /// Tells records of one place apart.
    pub name: [u8; 16],
}

/// How well a record is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// It survives the loss of a node.
    Safe,
    /// Too few nodes have it for that.
    Degraded,
}

/// Why the cluster could not keep, find or remove a record now, in words for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unkept(pub String);

/// A model as it is served.
#[derive(Clone)]
pub struct ServedModel {
    /// Its name, as listed.
    pub name: String,
    /// Other names it answers to; not listed.
    pub aliases: Vec<String>,
    /// Tokenizer and template.
    pub model: Arc<model::Processor>,
    /// Longest prompt plus answer, in tokens.
    pub context: u32,
    /// When it began to be served, in seconds since the Unix epoch.
    pub created: u64,
    /// How it writes reasoning and calls.
    pub format: Format,
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
