use super::*;
use crate::cluster::{Served, ServedModel, Want};
use crate::testing::Nobody;
use crate::weight::weight;
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::hash::{ClientSalt, RoutingKey};
use protocol::id::TenantId;
use protocol::prompt::{Prompt, Refusal};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use tokio::sync::Semaphore;

/// Records, each kept when it is let.
struct Store {
    records: Mutex<HashMap<RecordName, Vec<u8>>>,
    /// One permit per record that may be kept.
    allowed: Semaphore,
    /// One permit per record that is kept.
    kept: Semaphore,
}

fn store() -> Arc<Store> {
    let (allowed, kept) = (Semaphore::new(0), Semaphore::new(0));
    Arc::new(Store { records: Mutex::default(), allowed, kept })
}

/// A cluster that keeps records there.
struct Stored(Arc<Store>);

impl Cluster for Stored {
    fn models(&self) -> Arc<[ServedModel]> {
        Nobody.models()
    }

    fn awaits(&self, model: Option<&str>) -> bool {
        Nobody.awaits(model)
    }

    fn readiness(&self) -> Result<(), String> {
        Nobody.readiness()
    }

    fn routing_key(
        &self,
        served: &ServedModel,
        tenant: &TenantId,
        salt: Option<&ClientSalt>,
    ) -> Option<RoutingKey> {
        Nobody.routing_key(served, tenant, salt)
    }

    fn serve(&self, prompt: Prompt, want: Want) -> BoxFuture<'static, Result<Served, Refusal>> {
        Nobody.serve(prompt, want)
    }

    fn sealing_secret(&self, tenant: &TenantId) -> [u8; 32] {
        Nobody.sealing_secret(tenant)
    }

    fn keep(
        &self,
        name: RecordName,
        value: Vec<u8>,
        _: Span,
    ) -> BoxFuture<'static, Result<Kept, Unkept>> {
        let store = self.0.clone();
        async move {
            store.allowed.acquire().await.unwrap().forget();
            store.records.lock().unwrap().insert(name, value);
            store.kept.add_permits(1);
            Ok(Kept::Safe)
        }
        .boxed()
    }

    fn recall(&self, name: RecordName) -> BoxFuture<'static, Result<Option<Vec<u8>>, Unkept>> {
        let value = self.0.records.lock().unwrap().get(&name).cloned();
        async move { Ok(value) }.boxed()
    }

    fn forget(&self, name: RecordName) -> BoxFuture<'static, Result<bool, Unkept>> {
        Nobody.forget(name)
    }

    fn entry_node(&self) -> String {
        Nobody.entry_node()
    }

    fn now_unix(&self) -> u64 {
        Nobody.now_unix()
    }

    fn fresh_id(&self) -> u128 {
        Nobody.fresh_id()
    }
}

/// A keeper that remembers nothing yet.
fn keeper(store: &Arc<Store>) -> Keeper {
    let cluster = Arc::new(Stored(store.clone()));
    Keeper::new(cluster, remembered(1 << 20), &[1; 32], Duration::from_secs(60))
}

fn digits(turn: usize) -> String {
    format!("{turn:032x}")
}

/// The response of `turn` with one item of output.
fn record(turn: usize, content: &Value) -> Record {
    let digits = digits(turn);
    let item = json!({ "type": "message", "id": format!("msg_{digits}00"), "content": content });
    let response = json!({ "id": format!("resp_{digits}"), "output": [item] });
    serde_json::from_value(json!({ "base": null, "tail": [], "input": [], "response": response }))
        .unwrap()
}

/// Letters that do not shrink.
fn noise(bytes: usize) -> Value {
    let hash = |i: usize| blake3::hash(&i.to_le_bytes()).to_string();
    (0..bytes.div_ceil(64)).map(hash).collect::<String>().into()
}

async fn keep(store: &Arc<Store>, record: Record) {
    store.allowed.add_permits(PARTS_MAX);
    assert_eq!(keeper(store).keep(record).await, Standing::Safe);
}

#[tokio::test(start_paused = true)]
async fn what_is_begun_to_be_kept_is_kept_when_the_client_leaves() {
    let store = store();
    let keeper = keeper(&store);
    let record = record(1, &noise(3 * PART));
    let parts = keeper.seal.seal(&pack(&record.to_bytes())).chunks(PART).count();
    assert!(parts > 1);
    store.allowed.add_permits(1);
    let mut keeping = Box::pin(keeper.keep(record));
    tokio::select! {
        _ = &mut keeping => panic!("it is not kept yet"),
        first = store.kept.acquire() => first.unwrap().forget(),
    }
    drop(keeping);
    store.allowed.add_permits(parts);
    let rest = u32::try_from(parts - 1).unwrap();
    let rest = tokio::time::timeout(Duration::from_secs(60), store.kept.acquire_many(rest)).await;
    rest.expect("the rest is kept as well").unwrap().forget();
    assert!(keeper.recall(&format!("resp_{}", digits(1))).await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_found_is_weighed_by_its_memory() {
    let store = store();
    // 20 KB of JSON, and near a megabyte of memory.
    keep(&store, record(1, &json!(vec![0; 10_000]))).await;
    let response = format!("resp_{}", digits(1));
    let previous = || Wanted { previous: Some(response.clone()), ..Wanted::default() };
    let named = || {
        let items = BTreeSet::from([format!("msg_{}00", digits(1))]);
        Wanted { previous: None, referenced: BTreeMap::from([(response.clone(), items)]) }
    };
    let ways: [(&dyn Fn() -> Wanted, &str); 2] = [(&previous, PREVIOUS), (&named, INPUT)];
    for (wanted, field) in ways {
        for most in [1_000, 900_000] {
            let error = keeper(&store).find(wanted(), most).await.unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field), "{error:?}");
            assert!(error.message.contains(&format!("more than {most} bytes")), "{error:?}");
        }
        let found = keeper(&store).find(wanted(), 1 << 20).await.unwrap();
        assert!((960_000..1 << 20).contains(&found.bytes()), "{}", found.bytes());
    }
    assert_eq!(keeper(&store).find(Wanted::default(), 1).await.unwrap().bytes(), 0);
}

/// A few bytes may be packed from many.
#[test]
fn no_more_is_unpacked_than_there_is_room_for() {
    let plain = vec![b' '; 10 << 20];
    let packed = pack(&plain);
    assert!(packed.len() < plain.len() / 10);
    assert!(matches!(unpack(&packed, plain.len()), Ok(again) if again == plain));
    assert!(matches!(unpack(&packed, plain.len() - 1), Err(Unread::Large)));
    assert!(matches!(unpack(b"\xff\xff", 10), Err(Unread::Damaged)));
}

#[tokio::test]
async fn items_of_many_responses_are_found() {
    let store = store();
    let (mut referenced, mut bytes) = (BTreeMap::new(), 0);
    for turn in 0..40 {
        let record = record(turn, &turn.to_string().into());
        bytes += weight(&record.response["output"][0]);
        keep(&store, record).await;
        let named = BTreeSet::from([format!("msg_{}00", digits(turn))]);
        referenced.insert(format!("resp_{}", digits(turn)), named);
    }
    let wanted = Wanted { previous: None, referenced };
    let found = keeper(&store).find(wanted, 1 << 20).await.unwrap();
    assert_eq!(found.bytes(), bytes);
}
