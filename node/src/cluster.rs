//! The cluster as the frontend sees it.

use crate::clock::Clock;
use crate::node::Node;
use frontend::{Cluster, Kept, RecordName, Served, ServedModel, Unkept, Want};
use futures::TryFutureExt;
use futures::future::BoxFuture;
use protocol::hash::{ClientSalt, RoutingKey};
use protocol::id::TenantId;
use protocol::prompt::{Prompt, Refusal};
use protocol::state::{RecordKey, RecordKind, StateError};
use protocol::time::Span;
use std::sync::Arc;

/// One node's view of the cluster.
pub(crate) struct View(pub(crate) Arc<Node>);

impl Cluster for View {
    fn models(&self) -> Arc<[ServedModel]> {
        self.0.catalog.models()
    }

    fn awaits(&self, model: Option<&str>) -> bool {
        self.0.catalog.awaits(model)
    }

    fn readiness(&self) -> Result<(), String> {
        self.0.readiness()
    }

    fn routing_key(
        &self,
        served: &ServedModel,
        tenant: &TenantId,
        salt: Option<&ClientSalt>,
    ) -> Option<RoutingKey> {
        self.0.routing_key(served, tenant, salt)
    }

    fn serve(&self, prompt: Prompt, want: Want) -> BoxFuture<'static, Result<Served, Refusal>> {
        Box::pin(crate::serve::serve(self.0.clone(), prompt, want))
    }

    fn sealing_secret(&self, tenant: &TenantId) -> [u8; 32] {
        self.0.tenant_secret(tenant)
    }

    fn keep(
        &self,
        name: RecordName,
        value: Vec<u8>,
        ttl: Span,
    ) -> BoxFuture<'static, Result<Kept, Unkept>> {
        let state = self.0.state.clone();
        Box::pin(async move {
            match state.put(RecordKind::Response, key(name), value, ttl).await.map_err(unkept)? {
                protocol::state::Kept::Safe => Ok(Kept::Safe),
                protocol::state::Kept::Degraded { .. } => Ok(Kept::Degraded),
            }
        })
    }

    fn recall(&self, name: RecordName) -> BoxFuture<'static, Result<Option<Vec<u8>>, Unkept>> {
        let state = self.0.state.clone();
        let get = async move { state.get(RecordKind::Response, key(name)).await };
        Box::pin(get.map_err(unkept))
    }

    fn forget(&self, name: RecordName) -> BoxFuture<'static, Result<bool, Unkept>> {
        let state = self.0.state.clone();
        let delete = async move { state.delete(RecordKind::Response, key(name)).await };
        Box::pin(delete.map_err(unkept))
    }

    fn entry_node(&self) -> String {
        self.0.id.to_string()
    }

    fn now_unix(&self) -> u64 {
        Clock::unix().0
    }

    fn fresh_id(&self) -> u128 {
        crate::startup::entropy::<16>().map_or(0, u128::from_le_bytes)
    }
}

fn key(RecordName { place, name }: RecordName) -> RecordKey {
    RecordKey { place, name }
}

fn unkept(error: StateError) -> Unkept {
    Unkept(error.to_string())
}
