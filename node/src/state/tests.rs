use super::*;
use crate::actors::records;
use crate::actors::shell::{Mail, Parts, Shell, Wired};
use crate::clock::Clock;
use crate::rim::Command;
use crate::switchboard::Machines;
use protocol::event::{MemberState, MemberView};
use protocol::id::{Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::time::Time;
use ractor::{Actor, ActorRef};
use std::path::Path;
use std::time::Duration;
use tiers::Records;
use tokio::sync::mpsc;
use wiring::Effect;

/// A machine that nobody asks anything here.
struct Idle<In>(std::marker::PhantomData<fn() -> In>);

impl<In> Machine for Idle<In> {
    type In = In;
    type Out = ();
    fn handle(&mut self, _: Time, _: In, _: &mut Vec<()>) {}
    fn tick(&mut self, _: Time, _: &mut Vec<()>) {}
    fn deadline(&self) -> Option<Time> {
        None
    }
}

struct Nothing;

impl crate::actors::shell::Perform<()> for Nothing {
    fn perform(&self, _: &mut Vec<()>) {}
}

async fn idle<In: Send + 'static>() -> ActorRef<Mail<In>> {
    let machine = Idle(std::marker::PhantomData);
    let parts = Parts { machine, perform: Nothing, clock: Clock::start() };
    Actor::spawn(None, Shell::<Idle<In>, Nothing>::new(), parts).await.unwrap().0
}

/// The parts of a node that keep records: the machine's shell, its thread, its disk.
struct Part {
    handle: StateHandle,
    board: Arc<Switchboard>,
    rim: Option<mpsc::Receiver<Command>>,
    records: Arc<Records>,
    writer: std::thread::JoinHandle<()>,
}

/// Opens a folder once a thread of before has let go of it.
async fn open(dir: &Path) -> Records {
    let opened = async {
        loop {
            match Records::open(dir) {
                Ok(records) => return records,
                Err(tiers::RecordsError::InUse(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), opened).await.unwrap()
}

async fn part(n: u8, dir: &Path) -> Part {
    let records = Arc::new(open(dir).await);
    let (rim_sender, rim) = mpsc::channel(4096);
    let board = Arc::new(Switchboard::new(
        rim_sender,
        mpsc::unbounded_channel().0,
        mpsc::unbounded_channel().0,
    ));
    let clock = Clock::start();
    let life = Incarnation { counter: 1, nonce: u64::from(n) << 40 };
    let kept = records::load(&records, Clock::unix()).unwrap();
    let config = state::Config::new(NodeId([n; 32]), life);
    let machine = state::State::new(config, clock.now(), kept);
    let shell = Shell::<state::State, Wired<fn(state::Out) -> Effect>>::new();
    let parts = Parts {
        machine,
        perform: Wired { board: board.clone(), effect: Effect::State as fn(state::Out) -> Effect },
        clock,
    };
    let (actor, _) = Actor::spawn(None, shell, parts).await.unwrap();
    let (sender, orders) = mpsc::channel(state::config::DISK_OPS_MAX);
    board.connect_records(sender);
    let writer = records::start(records.clone(), &board, orders).unwrap();
    let machines =
        Machines { gossip: idle().await, router: idle().await, store: idle().await, state: actor };
    board.connect(machines);
    Part { handle: StateHandle::new(board.clone()), board, rim: Some(rim), records, writer }
}

/// Carries the frames between parts, encoded as on the wire, and makes them members.
fn join(parts: &mut [Part]) {
    let boards: Vec<Arc<Switchboard>> = parts.iter().map(|part| part.board.clone()).collect();
    for (me, part) in (1u8..).zip(parts) {
        for other in (1..=boards.len() as u8).filter(|other| *other != me) {
            let view = MemberView {
                node: NodeId([other; 32]),
                incarnation: Incarnation { counter: 1, nonce: 0 },
                state: MemberState::Alive,
                contact: Default::default(),
                engines: Vec::new(),
                owed_bytes: 0,
                blocks: [0; 3],
            };
            part.board.send(Input::State(In::Member(Box::new(view))));
        }
        let (boards, mut rim) = (boards.clone(), part.rim.take().unwrap());
        tokio::spawn(async move {
            while let Some(command) = rim.recv().await {
                let Command::Direct(to, frame) = command else { continue };
                let bytes = protocol::wire::encode(&*frame).unwrap();
                let frame = protocol::wire::decode(&bytes).unwrap();
                boards[usize::from(to.0[0]) - 1].send(wiring::hear(NodeId([me; 32]), frame));
            }
        });
    }
}

fn stop(part: Part) {
    if let Some(machines) = part.board.machines() {
        machines.state.stop(None);
    }
    part.board.disconnect_records();
    part.writer.join().unwrap();
}

const KIND: RecordKind = RecordKind::Response;
const HOUR: Span = Span::secs(3600);

fn key(name: u8) -> RecordKey {
    RecordKey { place: [name % 5; 16], name: [name; 16] }
}

#[tokio::test]
async fn three_nodes_keep_each_others_records_on_disk() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut parts = Vec::new();
    for (n, dir) in (1u8..).zip(&dirs) {
        parts.push(part(n, dir.path()).await);
    }
    join(&mut parts);
    for name in 0..12u8 {
        let at = &parts[usize::from(name) % 3].handle;
        let value = vec![name; 100_000];
        assert_eq!(at.put(KIND, key(name), value, HOUR).await, Ok(Kept::Safe));
    }
    for name in 0..12u8 {
        for part in &parts {
            let found = part.handle.get(KIND, key(name)).await;
            assert_eq!(found, Ok(Some(vec![name; 100_000])));
        }
    }
    assert_eq!(parts[1].handle.delete(KIND, key(4)).await, Ok(true));
    assert_eq!(parts[2].handle.delete(KIND, key(4)).await, Ok(false));
    assert_eq!(parts[0].handle.get(KIND, key(4)).await, Ok(None));
    assert_eq!(parts[0].handle.get(RecordKind::Session, key(5)).await, Ok(None), "another kind");
    // Two disks at least have each.
    let now = Clock::unix();
    let held: usize =
        parts.iter().map(|part| records::load(&part.records, now).unwrap().len()).sum();
    assert!(held >= 24, "{held}");
    parts.into_iter().for_each(stop);
}

#[tokio::test]
async fn a_node_alone_finds_its_records_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let part = part(1, dir.path()).await;
        let long = vec![7; VALUE_MAX + 1];
        let refused = part.handle.put(KIND, key(1), long.clone(), HOUR).await;
        assert_eq!(refused, Err(StateError::TooLong(VALUE_MAX + 1)));
        let kept = part.handle.put(KIND, key(1), long[1..].to_vec(), HOUR).await;
        assert_eq!(kept, Ok(Kept::Safe));
        assert_eq!(part.handle.put(KIND, key(2), vec![2], HOUR).await, Ok(Kept::Safe));
        assert_eq!(part.handle.delete(KIND, key(2)).await, Ok(true));
        stop(part);
    }
    let part = part(2, dir.path()).await;
    assert_eq!(part.handle.get(KIND, key(1)).await, Ok(Some(vec![7; VALUE_MAX])));
    assert_eq!(part.handle.get(KIND, key(2)).await, Ok(None));
    stop(part);
}
