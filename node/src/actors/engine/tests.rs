use super::*;
use kvstore::In;
use std::sync::Mutex;
use std::time::Duration;

/// Notes what it is told, in order; keeps the permits of what it has not handled.
struct Store {
    told: Mutex<Vec<In>>,
    unhandled: Mutex<Vec<OwnedSemaphorePermit>>,
    mail: Arc<Semaphore>,
    running: Mutex<Vec<u32>>,
    died: Mutex<bool>,
}

const ENGINE: EngineId = EngineId(0);

impl Ear for Store {
    fn note_load(&self, _: EngineId, load: EngineLoad) {
        self.running.lock().unwrap().push(load.running);
    }

    fn engine_died(&self, _: EngineId) {
        *self.died.lock().unwrap() = true;
    }

    fn mail(&self) -> &Arc<Semaphore> {
        &self.mail
    }

    fn tell(&self, input: In, permit: Option<OwnedSemaphorePermit>) {
        self.told.lock().unwrap().push(input);
        self.unhandled.lock().unwrap().extend(permit);
    }
}

struct Bench {
    store: Arc<Store>,
    events: mpsc::Sender<EngineEvent>,
    releases: mpsc::UnboundedSender<LeaseId>,
    shell: tokio::task::JoinHandle<()>,
}

fn bench(places: usize) -> Bench {
    let store = Arc::new(Store {
        told: Mutex::default(),
        unhandled: Mutex::default(),
        mail: Arc::new(Semaphore::new(places)),
        running: Mutex::default(),
        died: Mutex::default(),
    });
    let (events, receiver) = mpsc::channel(1024);
    let (releases, released) = mpsc::unbounded_channel();
    let shell = tokio::spawn(run(store.clone(), ENGINE, receiver, released));
    Bench { store, events, releases, shell }
}

fn sealed(lease: u64, index: u32) -> EngineEvent {
    EngineEvent::Sealed { lease: LeaseId(lease), index, tokens: vec![] }
}

impl Bench {
    fn told(&self) -> usize {
        self.store.told.lock().unwrap().len()
    }

    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A lease ends behind all that its engine has told before: blocks sealed in its last step count.
#[tokio::test(start_paused = true)]
async fn a_release_follows_the_engines_events() {
    for _ in 0..50 {
        let bench = bench(1024);
        for index in 0..20 {
            bench.events.try_send(sealed(7, index)).unwrap();
        }
        bench.releases.send(LeaseId(7)).unwrap();
        bench.settle().await;
        let told = bench.store.told.lock().unwrap();
        assert_eq!(told.len(), 21);
        assert!(matches!(told.last(), Some(In::Released(LeaseId(7)))));
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_waits_while_the_mailbox_is_full() {
    let bench = bench(5);
    for index in 0..100 {
        bench.events.try_send(sealed(1, index)).unwrap();
    }
    bench.settle().await;
    assert_eq!(bench.told(), 5, "no more than there are places");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.told(), 5, "however long the block manager takes");
    bench.store.unhandled.lock().unwrap().truncate(2);
    bench.settle().await;
    assert_eq!(bench.told(), 8);
    while bench.told() < 100 {
        bench.store.unhandled.lock().unwrap().clear();
        bench.settle().await;
    }
    let told = bench.store.told.lock().unwrap();
    let indices = told.iter().map(|input| match input {
        In::Engine(_, EngineEvent::Sealed { index, .. }) => *index,
        other => panic!("{other:?}"),
    });
    assert!(indices.eq(0..100), "in order");
}

#[tokio::test(start_paused = true)]
async fn load_and_death_are_told_to_the_node_too() {
    let bench = bench(1024);
    let load = EngineLoad { running: 3, ..EngineLoad::default() };
    bench.events.try_send(EngineEvent::Load(load)).unwrap();
    bench.settle().await;
    assert_eq!(*bench.store.running.lock().unwrap(), [3]);
    assert!(!*bench.store.died.lock().unwrap());
    bench.events.try_send(EngineEvent::Died("no memory".into())).unwrap();
    bench.settle().await;
    assert!(*bench.store.died.lock().unwrap());
    assert_eq!(bench.told(), 2, "the block manager hears both");
}

/// An engine that is gone gives up its leases one after another; none is forgotten.
#[tokio::test(start_paused = true)]
async fn leases_of_a_gone_engine_are_still_released() {
    let Bench { store, events, releases, shell } = bench(1024);
    events.try_send(sealed(1, 0)).unwrap();
    for lease in 1..4 {
        releases.send(LeaseId(lease)).unwrap();
    }
    drop(events);
    tokio::time::timeout(Duration::from_secs(1), shell).await.unwrap().unwrap();
    assert!(releases.send(LeaseId(4)).is_err(), "later ones go the direct way");
    let told = store.told.lock().unwrap();
    let released = told.iter().filter(|input| matches!(input, In::Released(_))).count();
    assert_eq!((told.len(), released), (4, 3));
    assert!(matches!(told.first(), Some(In::Engine(..))), "behind the event");
}
