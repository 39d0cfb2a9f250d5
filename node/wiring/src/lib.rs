//! The machines joined: one total function from effect to destination.
//!
//! [`deliver`] is called by the actors of a real node and by the simulated world alike, so that
//! what is tested there is what runs here. Knows no tokio, no ractor, no socket.

#[cfg(test)]
mod tests;

use protocol::disk::DiskOp;
use protocol::event::{Contact, MemberView};
use protocol::id::{EngineId, Incarnation, NodeId};
use protocol::op::{EngineOp, FetchOp, Grant, LeaseId, OpId, ReadId, Readable};
use protocol::prompt::Refusal;
use protocol::trust::MemberCert;
use protocol::wire::gossip::{Direct, Published};

/// An input of one of the joined machines.
#[derive(Debug)]
pub enum Input {
    /// For the gossip machine.
    Gossip(gossip::In),
    /// For the router machine.
    Router(router::In),
    /// For the block manager.
    Store(kvstore::In),
    /// For the machine of replicated records.
    State(state::In),
}

/// An effect of one of the joined machines.
#[derive(Debug)]
pub enum Effect {
    /// From the gossip machine.
    Gossip(gossip::Out),
    /// From the router machine.
    Router(router::Out),
    /// From the block manager.
    Store(kvstore::Out),
    /// From the machine of replicated records.
    State(state::Out),
}

/// Where an effect goes.
#[derive(Debug)]
pub enum Delivery {
    /// To a machine of the same node.
    Local(Input),
    /// A frame to a member.
    Direct {
        /// To whom.
        to: NodeId,
        /// What.
        frame: Direct,
    },
    /// A message on the site's topic.
    Publish(Published),
    /// Let a member in, and remember it.
    Allow(MemberCert),
    /// A member can be reached there.
    Dial {
        /// Who.
        node: NodeId,
        /// Where.
        contact: Contact,
    },
    /// Close the connections to a node; it may come back.
    Hangup(NodeId),
    /// Let a node in no longer.
    Disallow(NodeId),
    /// A peer was refused, for the log.
    Incompatible {
        /// Which.
        node: NodeId,
        /// Why.
        reason: gossip::Refused,
    },
    /// A member's state, place or load changed.
    Member(Box<MemberView>),
    /// Another live process has this node's identity: stop.
    Twin {
        /// This life.
        ours: Incarnation,
        /// The other.
        theirs: Incarnation,
    },
    /// This node was heard of in a later life, with this counter: go beyond it.
    JumpPast(u64),
    /// An operation for an engine.
    Engine(EngineId, EngineOp),
    /// Fetch blocks from a peer.
    Fetch(FetchOp),
    /// Stop a fetch; answered by the end of the fetch.
    CancelFetch(OpId),
    /// An operation for the NVMe tier, in this order; answered by [`kvstore::In::Disk`].
    Disk(DiskOp),
    /// A request's lease.
    Granted(Grant),
    /// A request gets no lease.
    Refused(LeaseId, Refusal),
    /// A peer may read these blocks.
    ReadGranted {
        /// The read.
        read: ReadId,
        /// What it may read.
        blocks: Vec<Readable>,
    },
    /// An operation for the node's durable records, in this order; writes are answered by
    /// [`state::In::Written`].
    Record(state::DiskOp),
    /// A call about a replicated record is answered.
    Answered {
        /// Which.
        call: u64,
        /// How.
        answer: state::Answer,
    },
    /// Other owners have all replicated records of this node, which leaves.
    HandedOver,
}

/// Appends where `effect` goes. Total: every effect of every machine has its destinations here and
/// nowhere else. Order matters: a block's event reaches the own index before any peer hears of it.
pub fn deliver(effect: Effect, out: &mut Vec<Delivery>) {
    match effect {
        Effect::Gossip(effect) => out.extend(from_gossip(effect).into_iter().flatten()),
        Effect::Router(effect) => out.push(from_router(effect)),
        Effect::Store(effect) => from_store(effect, out),
        Effect::State(effect) => out.push(from_state(effect)),
    }
}

/// For which machine a frame of a member is.
pub fn hear(from: NodeId, frame: Direct) -> Input {
    match frame {
        Direct::State(frame) => Input::State(state::In::Frame { from, frame: *frame }),
        frame => Input::Gossip(gossip::In::Direct { from, frame }),
    }
}

fn to_router(input: router::In) -> Delivery {
    Delivery::Local(Input::Router(input))
}

fn to_gossip(input: gossip::In) -> Delivery {
    Delivery::Local(Input::Gossip(input))
}

fn from_state(effect: state::Out) -> Delivery {
    use state::Out;
    match effect {
        Out::Send { to, frame } => Delivery::Direct { to, frame: Direct::State(Box::new(frame)) },
        Out::Disk(op) => Delivery::Record(op),
        Out::Answer { call, answer } => Delivery::Answered { call, answer },
        Out::HandedOver => Delivery::HandedOver,
    }
}

fn from_gossip(effect: gossip::Out) -> [Option<Delivery>; 3] {
    use gossip::Out;
    let one = |delivery| [Some(delivery), None, None];
    match effect {
        Out::Direct { to, frame } => one(Delivery::Direct { to, frame }),
        Out::Publish(message) => one(Delivery::Publish(message)),
        Out::Learn(batch) => one(to_router(router::In::Learn(batch))),
        Out::LearnSnapshot(snapshot) => one(to_router(router::In::LearnSnapshot(snapshot))),
        Out::CutSnapshot { to, origins } => one(to_router(router::In::CutSnapshot { to, origins })),
        Out::CutBuckets { to, wanted, later } => {
            one(to_router(router::In::CutBuckets { to, wanted, later }))
        }
        Out::LearnBuckets { buckets, later } => {
            one(to_router(router::In::LearnBuckets { buckets, later }))
        }
        Out::Forget { node, incarnation } => {
            one(to_router(router::In::Forget { node, incarnation }))
        }
        Out::Member(view) => [
            Some(to_router(router::In::Member(view.clone()))),
            Some(Delivery::Local(Input::State(state::In::Member(view.clone())))),
            Some(Delivery::Member(view)),
        ],
        Out::Allow(cert) => {
            let known = Delivery::Local(Input::State(state::In::Known(cert.node)));
            [Some(known), Some(Delivery::Allow(cert)), None]
        }
        Out::Disallow(node) => one(Delivery::Disallow(node)),
        Out::Dial { node, contact } => one(Delivery::Dial { node, contact }),
        Out::Close(node) => one(Delivery::Hangup(node)),
        Out::Refused { node, reason } => one(Delivery::Incompatible { node, reason }),
        Out::Twin { ours, theirs } => one(Delivery::Twin { ours, theirs }),
        Out::JumpPast(counter) => one(Delivery::JumpPast(counter)),
    }
}

fn from_store(effect: kvstore::Out, out: &mut Vec<Delivery>) {
    use kvstore::Out;
    match effect {
        Out::Granted(grant) => out.push(Delivery::Granted(grant)),
        Out::Refused(lease, refusal) => out.push(Delivery::Refused(lease, refusal)),
        Out::Engine(engine, op) => out.push(Delivery::Engine(engine, op)),
        Out::Fetch(op) => out.push(Delivery::Fetch(op)),
        Out::CancelFetch(op) => out.push(Delivery::CancelFetch(op)),
        Out::Disk(op) => out.push(Delivery::Disk(op)),
        Out::Event(event) => {
            out.push(to_router(router::In::Own(event.clone())));
            out.push(to_gossip(gossip::In::Event(event)));
        }
        Out::ReadGranted { read, blocks } => out.push(Delivery::ReadGranted { read, blocks }),
    }
}

fn from_router(effect: router::Out) -> Delivery {
    use router::Out;
    match effect {
        Out::SnapshotCut { to, snapshots } => to_gossip(gossip::In::SnapshotCut { to, snapshots }),
        Out::BucketsCut { to, buckets } => to_gossip(gossip::In::BucketsCut { to, buckets }),
        Out::DigestMismatch { origin, incarnation, seq, said: _, found: _, buckets } => {
            to_gossip(gossip::In::Diverged { origin, incarnation, seq, buckets })
        }
    }
}
