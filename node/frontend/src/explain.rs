//! A body made into a prompt that is not served, for `route explain`.

use crate::cluster::Cluster;
use crate::prompt::cache::PrefixCache;
use crate::prompt::client::Client;
use crate::prompt::session::Session;
use crate::prompt::{self, Who};
use crate::responses::record::Recalled;
use crate::seal::Seal;
use crate::server::resolve;
use crate::server::speech::Endpoint;
use protocol::id::{RequestId, TenantId};
use protocol::prompt::Prompt;
use serde_json::Value;
use std::sync::Arc;

/// Reads a body as its endpoint would, and makes its prompt. A body with `input` is taken for one of
/// Responses, one with a top-level `system` for one of Messages, one with `prompt` for one of Completions, others
/// for Chat Completions.
///
/// # Errors
/// What the endpoint would answer, in words.
pub async fn prompt_of(cluster: Arc<dyn Cluster>, body: Value) -> Result<Prompt, String> {
    let work = move || {
        let bytes = body.to_string().into_bytes();
        let tenant = TenantId::local();
        let seal = || Seal::of_reasoning(&cluster.sealing_secret(&tenant));
        let (ask, _) = Endpoint::guess(&body)
            .read(&bytes, seal, Recalled::default())
            .map_err(|error| error.message)?;
        let (served, key) =
            resolve(cluster.as_ref(), &ask, &tenant).map_err(|error| error.message)?;
        let (id, session) = (RequestId(cluster.fresh_id()), Session::default());
        let who = Who { id, tenant, session, seed: 0, priority: 0 };
        let cache = PrefixCache::new(0);
        prompt::prepare(&ask, who, &served, &key, &cache, &Client::stays())
            .map(|prepared| prepared.prompt)
            .map_err(|error| error.message)
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}
