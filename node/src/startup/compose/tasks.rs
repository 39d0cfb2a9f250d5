//! The tasks of a running node that belong to no request.

use crate::actors;
use crate::actors::shell::{self, Mail};
use crate::catalog::{self, offers_differ};
use crate::clock::Clock;
use crate::fault::Fault;
use crate::node::Node;
use crate::rim;
use crate::startup::put;
use crate::switchboard::{FetchOrder, News};
use protocol::event::MemberState;
use protocol::id::{EngineId, Incarnation, NodeId};
use protocol::op::EngineEvent;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use wiring::Input;

/// Between two reports of load to the gossip machine.
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// Between two looks at the wall clock and the certificate.
const WALL_EVERY: Duration = Duration::from_secs(20);

/// Starts them all; they end when the node stops.
pub(super) fn start(
    node: &Arc<Node>,
    rim_commands: mpsc::Sender<rim::Command>,
    happened: mpsc::Receiver<rim::Happened>,
    news: mpsc::UnboundedReceiver<News>,
    fetches: mpsc::UnboundedReceiver<FetchOrder>,
    events: Vec<(EngineId, mpsc::Receiver<EngineEvent>)>,
) {
    node.board.send(Input::Gossip(gossip::In::WallClock(Clock::unix())));
    for known in node.roster.all() {
        if known.cert.node != node.id {
            let _ = rim_commands.try_send(rim::Command::Allow(known.cert.node));
            node.board.send(Input::Gossip(gossip::In::Known {
                cert: known.cert,
                contact: known.contact,
            }));
        }
    }
    let mut ways = BTreeMap::new();
    for (engine, receiver) in events {
        // At most one message per lease.
        let (way, releases) = mpsc::unbounded_channel();
        ways.insert(engine, way);
        spawn(node, actors::engine::run(node.clone(), engine, receiver, releases));
    }
    node.board.connect_releases(ways);
    spawn(node, hear(node.clone(), happened));
    spawn(node, follow_news(node.clone(), rim_commands, news));
    spawn(node, actors::fetch::run(node.clone(), fetches));
    spawn(node, catalog::run(node.clone()));
    spawn(node, report(node.clone()));
    spawn(node, watch_wall_clock(node.clone()));
    spawn(node, watch_machines(node.clone()));
}

/// A task that is dropped when the node stops.
fn spawn(node: &Arc<Node>, work: impl Future<Output = ()> + Send + 'static) {
    let stop = node.stop.clone();
    node.tasks.spawn(async move {
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    });
}

/// A node without one of its machines cannot go on: it stops and says so.
async fn watch_machines(node: Arc<Node>) {
    let Some(machines) = node.board.machines() else { return };
    let gone = tokio::select! {
        () = shell::gone(&machines.gossip) => "gossip",
        () = shell::gone(&machines.router) => "router",
        () = shell::gone(&machines.store) => "block manager",
        () = shell::gone(&machines.state) => "keeper of replicated records",
    };
    node.fail(Fault::new(
        format!("the {gone} of this node panicked"),
        "this is a defect; please report it with the log, and start the node again",
    ));
}

/// Passes what the rim hears on to the machine that it is for, each with a permit of its mailbox.
async fn hear(node: Arc<Node>, mut happened: mpsc::Receiver<rim::Happened>) {
    while let Some(event) = happened.recv().await {
        let input = match event {
            rim::Happened::Connected(peer) => Input::Gossip(gossip::In::Connected(peer)),
            rim::Happened::Disconnected(peer) => Input::Gossip(gossip::In::Disconnected(peer)),
            rim::Happened::Direct(from, frame) => wiring::hear(from, frame),
            rim::Happened::Published(from, frame) => {
                Input::Gossip(gossip::In::Published { from, frame })
            }
        };
        let mail = match &input {
            Input::State(_) => &node.state_mail,
            _ => &node.gossip_mail,
        };
        let Ok(permit) = mail.clone().acquire_owned().await else { return };
        let Some(machines) = node.board.machines() else { return };
        let sent = match input {
            Input::Gossip(input) => machines.gossip.cast(Mail::Input(input, Some(permit))).is_ok(),
            Input::State(input) => machines.state.cast(Mail::Input(input, Some(permit))).is_ok(),
            Input::Router(_) | Input::Store(_) => true,
        };
        if !sent {
            return;
        }
    }
}

/// Acts on news about members: remembers them, and stops when this node is not itself any more.
async fn follow_news(
    node: Arc<Node>,
    rim: mpsc::Sender<rim::Command>,
    mut news: mpsc::UnboundedReceiver<News>,
) {
    while let Some(item) = news.recv().await {
        match item {
            News::Allow(cert) => {
                let member = cert.node;
                node.roster.admit(*cert);
                if member != node.id && !is_seen(&node, &member) {
                    node.catalog.hear();
                }
                remember(&node, &member).await;
            }
            News::Disallow(member) => node.roster.expel(&member),
            News::Member(view) => {
                let member = view.node;
                if view.state == MemberState::Alive && node.roster.locate(&member, &view.contact) {
                    let _ = rim.send(rim::Command::Contact(member, view.contact.clone())).await;
                    remember(&node, &member).await;
                }
                let now = (view.incarnation, view.state);
                let (before, other_models) = {
                    let mut views = node.views.write().unwrap_or_else(PoisonError::into_inner);
                    let other_models = offers_differ(views.get(&member), &view);
                    let before = views.insert(member, *view);
                    (before.map(|view| (view.incarnation, view.state)), other_models)
                };
                if other_models {
                    node.relist();
                }
                if member != node.id && before != Some(now) {
                    keep_path(&node, member, before, now);
                }
            }
            News::Twin(theirs) => node.fail(Fault::new(
                format!("another live process has this node's identity (its boot {})", theirs.counter),
                "two processes run on copies of one data folder: stop one and start it with --new-identity",
            )),
            News::JumpPast(counter) => jump_past(&node, counter),
        }
    }
}

fn is_seen(node: &Node, member: &NodeId) -> bool {
    node.views.read().unwrap_or_else(PoisonError::into_inner).contains_key(member)
}

/// Keeps the transfer agent's paths in step with a member's life.
fn keep_path(
    node: &Arc<Node>,
    member: NodeId,
    before: Option<(Incarnation, MemberState)>,
    (life, state): (Incarnation, MemberState),
) {
    if before.is_none_or(|(earlier, _)| earlier != life) {
        // Connections to an earlier life are dead; what it failed at says nothing of this one.
        node.transfer.disconnect(&member);
        node.transfer.readmit(&member);
    }
    match state {
        MemberState::Alive => {
            let node = node.clone();
            node.clone().tasks.spawn(async move {
                // Ahead of need: the round trip is known before the first fetch is priced.
                let addresses = node.roster.addresses(&member);
                if let Err(error) = node.transfer.warm(member, &addresses).await {
                    tracing::debug!(peer = %member.short(), %error, "no path yet");
                }
            });
        }
        MemberState::Dead | MemberState::Left => node.transfer.disconnect(&member),
        MemberState::Suspect | MemberState::Draining => {}
    }
}

async fn remember(node: &Arc<Node>, member: &protocol::id::NodeId) {
    let Some(known) = node.roster.get(member) else { return };
    let node = node.clone();
    // RocksDB syncs to disk here: not on an async thread.
    let _ = tokio::task::spawn_blocking(move || node.remember(&known)).await;
}

/// The data folder was restored from an older copy: go beyond what others remember of this node.
fn jump_past(node: &Arc<Node>, counter: u64) {
    let fault = match node.records.raise_incarnation(counter) {
        Ok(()) => Fault::begin_again(format!(
            "this node has lived before (boot {counter}): its data folder is an older copy"
        )),
        Err(error) => Fault::new(error, "check the disk of the data folder"),
    };
    node.fail(fault);
}

/// Tells the gossip machine, a few times a second, what the next heartbeat says; and the router
/// what the paths to peers measure.
async fn report(node: Arc<Node>) {
    let mut every = tokio::time::interval(REPORT_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let blocks = crate::status::blocks(&node).await;
        node.board.send(Input::Gossip(gossip::In::Report {
            engines: node.engine_reports(),
            owed_bytes: node.owed.load(std::sync::atomic::Ordering::Relaxed),
            blocks,
            draining: node.is_draining(),
        }));
        for path in node.transfer.paths() {
            node.board.send(Input::Router(router::In::Path {
                node: path.node,
                rtt_ms: path.rtt_ms.unwrap_or(0.0) as f32,
                bytes_s: path.bandwidth_bytes_s.unwrap_or(0.0),
                reachable: path.quarantined_ms.is_none_or(|left| left == 0),
            }));
        }
    }
}

async fn watch_wall_clock(node: Arc<Node>) {
    let mut every = tokio::time::interval(WALL_EVERY);
    loop {
        every.tick().await;
        let now = Clock::unix();
        node.board.send(Input::Gossip(gossip::In::WallClock(now)));
        let mut membership = node.membership();
        if membership.renew(now) {
            if let Err(error) = put(&node.records, "cluster", b"self", &membership) {
                tracing::warn!(%error, "the renewed certificate could not be kept");
                continue;
            }
            node.transfer.set_hello(node.hello(&membership));
            node.board.send(Input::Gossip(gossip::In::Admitted(membership.cert.clone())));
            *node.membership.write().unwrap_or_else(PoisonError::into_inner) = membership;
        }
    }
}
