use super::*;
use protocol::op::OpId;
use std::sync::Mutex;

#[derive(Default)]
struct Store(Mutex<Vec<DiskEvent>>);

impl Ear for Store {
    fn tell(&self, input: kvstore::In) {
        match input {
            kvstore::In::Disk(event) => self.0.lock().unwrap().push(event),
            other => panic!("{other:?}"),
        }
    }
}

fn events() -> Vec<DiskEvent> {
    vec![
        DiskEvent::Found(Vec::new()),
        DiskEvent::Written { op: OpId(1), durable: true },
        DiskEvent::Read { op: OpId(2), result: DiskRead::Corrupt },
        DiskEvent::Quarantined { reason: "EIO".into() },
    ]
}

#[tokio::test]
async fn what_the_tier_tells_reaches_the_store_in_order_until_the_tier_is_gone() {
    let (told, mut heard) = mpsc::unbounded_channel();
    let store = Arc::new(Store::default());
    let (first, rest) = (events().remove(0), events().split_off(1));
    told.send(first.clone()).unwrap();
    pass_on_all(&*store, &mut heard);
    assert_eq!(*store.0.lock().unwrap(), [first]);
    let shell = tokio::spawn(run(store.clone(), heard));
    rest.into_iter().for_each(|event| told.send(event).unwrap());
    drop(told);
    shell.await.unwrap();
    assert_eq!(*store.0.lock().unwrap(), events());
}
