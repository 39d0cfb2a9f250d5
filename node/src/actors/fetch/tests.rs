use super::*;
use crate::clock::Clock;
use kvstore::In;
use protocol::block::{BlockKey, Generation, SlotId, SlotRef, StorageId};
use protocol::hash::PrefixHash;
use protocol::id::NodeId;
use protocol::time::{Span, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// Answers one block every 100 ms; a fetch from node 9 answers none.
struct Peers {
    clock: Clock,
    told: Mutex<Vec<In>>,
    /// Fetches whose writes may still land.
    writing: Arc<Mutex<BTreeSet<OpId>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Writing(Arc<Mutex<BTreeSet<OpId>>>, OpId);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

impl Ground for Peers {
    fn fetch(&self, op: FetchOp, progress: mpsc::Sender<(usize, Fetched)>) -> BoxFuture<'_, ()> {
        self.writing.lock().unwrap().insert(op.op);
        let writing = Writing(self.writing.clone(), op.op);
        let deadline = self.clock.instant(op.deadline);
        Box::pin(async move {
            let _writing = writing;
            let answering = async {
                for index in 0..op.blocks.len() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    if op.from == NodeId([9; 32]) {
                        std::future::pending::<()>().await;
                    }
                    let _ = progress.send((index, Fetched::Absent)).await;
                }
            };
            let _ = tokio::time::timeout_at(deadline.into(), answering).await;
        })
    }

    fn tell(&self, input: In) {
        if let In::FetchEnded { op } = &input {
            // Nothing may be written to a slot that the block manager hands out again.
            assert!(!self.writing.lock().unwrap().contains(op), "told before its writes ended");
        }
        self.told.lock().unwrap().push(input);
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }
}

struct Bench {
    peers: Arc<Peers>,
    orders: mpsc::UnboundedSender<FetchOrder>,
}

fn bench() -> Bench {
    let peers = Arc::new(Peers {
        clock: Clock::start(),
        told: Mutex::default(),
        writing: Arc::default(),
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
    });
    let (orders, receiver) = mpsc::unbounded_channel();
    tokio::spawn(run(peers.clone(), receiver));
    Bench { peers, orders }
}

impl Bench {
    fn start(&self, op: u64, from: u8, blocks: u32, within: Span) {
        let place = |n: u32| {
            let key = BlockKey { prefix: PrefixHash(n.into()), storage: StorageId(1) };
            (key, SlotRef { slot: SlotId(n), generation: Generation(1) })
        };
        let deadline: Time = self.peers.clock.now() + within;
        let op = FetchOp {
            op: OpId(op),
            from: NodeId([from; 32]),
            blocks: (0..blocks).map(place).collect(),
            block_bytes: 1,
            deadline,
        };
        assert!(self.orders.send(FetchOrder::Start(op)).is_ok());
    }

    fn cancel(&self, op: u64) {
        assert!(self.orders.send(FetchOrder::Cancel(OpId(op))).is_ok());
    }

    /// Indices told of an operation, and whether its end was told, last and once.
    fn told(&self, op: u64) -> (Vec<usize>, bool) {
        let (mut blocks, mut ended) = (Vec::new(), false);
        for input in self.peers.told.lock().unwrap().iter() {
            match input {
                In::Fetched { op: of, index, .. } if of.0 == op => {
                    assert!(!ended, "a block after the end");
                    blocks.push(*index);
                }
                In::FetchEnded { op: of } if of.0 == op => {
                    assert!(!ended, "two ends");
                    ended = true;
                }
                _ => {}
            }
        }
        (blocks, ended)
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn blocks_are_told_as_they_arrive_and_the_end_last() {
    let bench = bench();
    bench.start(1, 1, 3, Span::secs(10));
    pass(150).await;
    assert_eq!(bench.told(1), (vec![0], false));
    pass(100).await;
    assert_eq!(bench.told(1), (vec![0, 1], false));
    pass(100).await;
    assert_eq!(bench.told(1), (vec![0, 1, 2], true));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_kept_on_the_nodes_clock() {
    let bench = bench();
    pass(5000).await;
    bench.start(1, 1, 10, Span::millis(450));
    pass(449).await;
    assert_eq!(bench.told(1), (vec![0, 1, 2, 3], false));
    pass(3).await;
    assert_eq!(bench.told(1), (vec![0, 1, 2, 3], true));
    bench.start(2, 9, 1, Span::millis(300));
    pass(303).await;
    assert_eq!(bench.told(2), (vec![], true), "a silent peer ends too");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_its_fetch_and_no_other() {
    let bench = bench();
    bench.start(1, 9, 4, Span::secs(100));
    bench.start(2, 1, 4, Span::secs(100));
    pass(150).await;
    bench.cancel(1);
    bench.cancel(77);
    pass(1).await;
    assert_eq!(bench.told(1), (vec![], true));
    assert_eq!(*bench.peers.writing.lock().unwrap(), BTreeSet::from([OpId(2)]));
    bench.cancel(1);
    pass(300).await;
    assert_eq!(bench.told(2), (vec![0, 1, 2, 3], true));
    assert_eq!(bench.told(1), (vec![], true), "a late cancel is ignored");
}

#[tokio::test(start_paused = true)]
async fn stopping_the_node_ends_all_fetches() {
    let bench = bench();
    for op in 0..5 {
        bench.start(op, if op == 0 { 1 } else { 9 }, 50, Span::secs(100));
    }
    pass(120).await;
    bench.peers.stop.cancel();
    bench.peers.tasks.close();
    let ended = tokio::time::timeout(Duration::from_secs(1), bench.peers.tasks.wait()).await;
    assert!(ended.is_ok() && bench.peers.writing.lock().unwrap().is_empty());
    assert_eq!(bench.told(0), (vec![0], true));
    assert!((1..5).all(|op| bench.told(op) == (vec![], true)));
}
