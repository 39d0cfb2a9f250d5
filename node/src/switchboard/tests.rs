use super::*;
use crate::actors::shell::{Parts, Perform, Shell};
use crate::clock::Clock;
use protocol::machine::Machine;
use protocol::time::Time;
use ractor::Actor;
use std::time::Duration;

type Heard<In> = Arc<Mutex<Vec<In>>>;

/// Notes its inputs and does nothing.
struct Recorder<In>(Heard<In>);

impl<In: Send> Machine for Recorder<In> {
    type In = In;
    type Out = ();

    fn handle(&mut self, _: Time, input: In, _: &mut Vec<()>) {
        self.0.lock().unwrap().push(input);
    }

    fn tick(&mut self, _: Time, _: &mut Vec<()>) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}

struct Nothing;

impl Perform<()> for Nothing {
    fn perform(&self, _: &mut Vec<()>) {}
}

async fn recorder<In: Send + 'static>() -> (ActorRef<Mail<In>>, Heard<In>) {
    let heard = Heard::default();
    let machine = Recorder(heard.clone());
    let parts = Parts { machine, perform: Nothing, clock: Clock::start() };
    let shell = Shell::<Recorder<In>, Nothing>::new();
    (Actor::spawn(None, shell, parts).await.unwrap().0, heard)
}

struct Bench {
    board: Switchboard,
    store: Heard<kvstore::In>,
    rim: mpsc::Receiver<rim::Command>,
    fetches: mpsc::UnboundedReceiver<FetchOrder>,
}

async fn bench() -> Bench {
    let (rim_sender, rim) = mpsc::channel(2);
    let (news, _) = mpsc::unbounded_channel();
    let (fetch_sender, fetches) = mpsc::unbounded_channel();
    let board = Switchboard::new(rim_sender, news, fetch_sender);
    let (gossip, _) = recorder().await;
    let (router, _) = recorder().await;
    let (store_actor, store) = recorder().await;
    let (state, _) = recorder().await;
    board.connect(Machines { gossip, router, store: store_actor, state });
    Bench { board, store, rim, fetches }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn grant(lease: u64) -> Grant {
    Grant { lease: LeaseId(lease), slots: vec![], ready: 0, arriving: vec![] }
}

#[tokio::test(start_paused = true)]
async fn answers_reach_those_who_wait() {
    let bench = bench().await;
    let (first, second) =
        (bench.board.expect_lease(LeaseId(1)), bench.board.expect_lease(LeaseId(2)));
    bench.board.dispatch(Delivery::Refused(LeaseId(2), Refusal::Gone));
    bench.board.dispatch(Delivery::Granted(grant(1)));
    assert_eq!(first.await.unwrap().unwrap().lease, LeaseId(1));
    assert_eq!(second.await.unwrap().unwrap_err(), Refusal::Gone);
    let read = bench.board.expect_read(ReadId(5));
    bench.board.dispatch(Delivery::ReadGranted { read: ReadId(5), blocks: vec![] });
    assert!(read.await.unwrap().is_empty());
    settle().await;
    assert!(bench.store.lock().unwrap().is_empty(), "nothing to take back");
}

/// An answer that comes when its caller is gone gives back what it grants, once.
#[tokio::test(start_paused = true)]
async fn late_answers_give_back_what_they_grant() {
    let bench = bench().await;
    drop(bench.board.expect_lease(LeaseId(1)));
    bench.board.dispatch(Delivery::Granted(grant(1)));
    bench.board.dispatch(Delivery::Granted(grant(1)));
    drop(bench.board.expect_lease(LeaseId(2)));
    bench.board.dispatch(Delivery::Refused(LeaseId(2), Refusal::Gone));
    drop(bench.board.expect_read(ReadId(3)));
    bench.board.dispatch(Delivery::ReadGranted { read: ReadId(3), blocks: vec![] });
    settle().await;
    let heard = bench.store.lock().unwrap();
    let released = heard.iter().filter(|i| matches!(i, kvstore::In::Released(LeaseId(1)))).count();
    let ended = heard.iter().filter(|i| matches!(i, kvstore::In::ReadDone(ReadId(3)))).count();
    assert_eq!((heard.len(), released, ended), (3, 2, 1), "{heard:?}");
}

/// A lease ends behind its engine's events while the engine tells some, directly otherwise.
#[tokio::test(start_paused = true)]
async fn releases_take_the_engines_way_while_there_is_one() {
    let bench = bench().await;
    let (way, mut releases) = mpsc::unbounded_channel();
    bench.board.connect_releases(BTreeMap::from([(EngineId(0), way)]));
    bench.board.release(EngineId(0), LeaseId(1));
    settle().await;
    assert_eq!(releases.try_recv(), Ok(LeaseId(1)));
    assert!(bench.store.lock().unwrap().is_empty());
    releases.close();
    bench.board.release(EngineId(0), LeaseId(2));
    bench.board.release(EngineId(9), LeaseId(3));
    settle().await;
    let heard = bench.store.lock().unwrap();
    assert!(
        matches!(
            heard.as_slice(),
            [kvstore::In::Released(LeaseId(2)), kvstore::In::Released(LeaseId(3))]
        ),
        "{heard:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_rim_drops_and_the_machines_go_on() {
    let mut bench = bench().await;
    for n in 0..10 {
        let node = protocol::id::NodeId([n; 32]);
        bench.board.dispatch(Delivery::Hangup(node));
    }
    let mut got = 0;
    while bench.rim.try_recv().is_ok() {
        got += 1;
    }
    assert_eq!(got, 2);
    bench.board.dispatch(Delivery::CancelFetch(OpId(4)));
    assert!(matches!(bench.fetches.try_recv(), Ok(FetchOrder::Cancel(OpId(4)))));
}

#[tokio::test(start_paused = true)]
async fn before_the_machines_are_connected_nothing_is_sent() {
    let (rim, _rim) = mpsc::channel(2);
    let (news, _) = mpsc::unbounded_channel();
    let (fetches, _) = mpsc::unbounded_channel();
    let board = Switchboard::new(rim, news, fetches);
    board.send(Input::Store(kvstore::In::Released(LeaseId(1))));
    board.release(EngineId(0), LeaseId(1));
    assert!(board.machines().is_none() && board.engine(EngineId(0)).is_none());
}
