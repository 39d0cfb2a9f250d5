//! Puts the parts of a node together, says `ready`, and takes them apart again.

use super::{Home, entropy, get, hello, put, record_fault};
use crate::actors;
use crate::actors::shell::{Mail, Parts, Shell, Wired};
use crate::catalog::{Catalog, Own};
use crate::clock::Clock;
use crate::fault::Fault;
use crate::files::{read_text, write_secret};
use crate::host::NodeHost;
use crate::http::Listeners;
use crate::membership::{KnownMember, Membership, Roster};
use crate::models;
use crate::node::{LocalEngine, Node, Placement};
use crate::queue::Queue;
use crate::rim;
use crate::switchboard::{Machines, Switchboard};
use engine::Engine;
use protocol::id::EngineId;
use protocol::machine::Machine;
use protocol::op::EngineEvent;
use protocol::time::Span;
use ractor::{Actor, ActorRef};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, RwLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wiring::Effect;
use zeroize::Zeroizing;

mod disk;
mod engines;
mod tasks;

/// Frames of peers that may wait for the gossip machine; more wait in the rim.
const GOSSIP_MAIL_MAX: usize = 1024;
/// Frames about replicated records that may wait for their machine; each may have a mebibyte.
const STATE_MAIL_MAX: usize = 64;
/// Longest wait for tasks when the node stops.
const STOP_WITHIN: Duration = Duration::from_secs(5);

fn internal(error: impl std::fmt::Display) -> Fault {
    Fault::new(error, "this is a defect; please report it with the log")
}

/// The model and the engine, read and started; nothing with the engine `none`.
#[derive(Default)]
struct Served {
    model: Option<Own>,
    dram: Option<Arc<kernels::Pool>>,
    engines: BTreeMap<EngineId, Arc<dyn Engine>>,
    events: Vec<(EngineId, mpsc::Receiver<EngineEvent>)>,
    disk: Option<disk::Started>,
}

/// Reads the model and starts the engine. Slow, and blocking.
fn serve_model(home: &Home, clock: Clock) -> Result<Served, Fault> {
    let config = &home.config.engine;
    if config.kind == "none" {
        if !config.model.is_empty() {
            tracing::warn!(
                "without an engine the model is not read: those of other nodes are served"
            );
        }
        return Ok(Served::default());
    }
    tracing::info!(model = models::wanted(config), "reading the model");
    let model = models::open(config)?;
    let storage = engines::storage(config, &model);
    let name = models::served_name(config, &model);
    let dram_bytes = home.config.dram.mib.saturating_mul(1 << 20);
    fits_memory(engines::pool_bytes(config, &storage).saturating_add(dram_bytes))?;
    let pool = tiers::dram_pool(dram_bytes, &storage)
        .map_err(|error| Fault::new(error, "change dram.mib"))?;
    let disk = disk::start(&home.config, &storage, &pool, clock)?;
    let (sender, receiver) = mpsc::channel(actors::engine::EVENTS_MAX);
    let id = EngineId(0);
    let (dram, epoch) = (pool.clone(), clock.epoch());
    let start = engines::Start {
        id,
        name: name.clone(),
        model: model.clone(),
        dram,
        epoch,
        events: sender,
    };
    let started = engines::start(config, start)?;
    let format = models::format(config, &model);
    let names = (name.as_str(), config.aliases.as_slice());
    Ok(Served {
        model: Some(Own::new(&model, names, format, started.spec().context, Clock::unix().0)),
        dram: Some(pool),
        engines: BTreeMap::from([(id, started)]),
        events: vec![(id, receiver)],
        disk,
    })
}

/// Refuses pools that this machine's memory cannot hold, before anything is reserved.
fn fits_memory(bytes: u64) -> Result<(), Fault> {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim();
        kib.parse::<u64>().ok()?.checked_mul(1024)
    });
    match total {
        Some(total) if bytes > total => Err(Fault::new(
            format!("the pools need {} MiB, this machine has {} MiB", bytes >> 20, total >> 20),
            "make engine.kv_tokens or dram.mib smaller",
        )),
        _ => Ok(()),
    }
}

/// The machines, not yet running.
struct Built {
    gossip: gossip::Gossip,
    router: router::Router,
    store: kvstore::Store,
    state: state::State,
}

fn build_machines(
    home: &Home,
    membership: &Membership,
    served: &Served,
    clock: Clock,
) -> Result<(Built, Placement), Fault> {
    let specs: Vec<_> = served.engines.values().map(|engine| engine.spec().clone()).collect();
    let block_tokens = specs.first().map_or(16, |spec| spec.storage.block_tokens);
    let store = kvstore::Store::new(kvstore::Config {
        keypair: home.keypair.clone(),
        incarnation: home.incarnation,
        engines: specs,
        dram_slots: served.dram.as_ref().map_or(0, |pool| pool.slots()),
        dram_slot_bytes: served.dram.as_ref().map_or(0, |pool| pool.slot_bytes() as u64),
        nvme_slots: served.disk.as_ref().map_or(0, |(tier, _)| tier.slots()),
        buggify: None,
        decode_batch: 16 / block_tokens.clamp(1, 16),
        limits: kvstore::Limits::default(),
    })
    .map_err(internal)?;
    let settings = &home.config.gossip;
    let mut config = gossip::Config::new(
        home.keypair.clone(),
        home.incarnation,
        membership.cert.clone(),
        membership.issuer,
        home.contact(),
        u64::from_le_bytes(entropy()?),
    );
    config.batch_every = Span::millis(settings.batch_ms);
    config.heartbeat_every = Span::millis(settings.heartbeat_ms);
    config.suspect_after = Span::millis(settings.suspect_ms);
    config.dead_after = Span::millis(settings.dead_ms);
    let (router, index, loads) = router::Router::new(router::Config {
        params: placement_params(home),
        ..router::Config::new(home.node(), home.incarnation)
    });
    let policy = home.config.placement.policy.parse().map_err(internal)?;
    let placement = Placement { index, loads, policy };
    let gossip = gossip::Gossip::new(config, clock.now());
    let kept = actors::records::load(&home.records, Clock::unix()).map_err(record_fault)?;
    let config = state::Config::new(home.node(), home.incarnation);
    let state = state::State::new(config, clock.now(), kept);
    Ok((Built { gossip, router, store, state }, placement))
}

fn placement_params(home: &Home) -> router::Params {
    let settings = &home.config.placement;
    let given = |value: f64| (value > 0.0).then_some(value);
    router::Params {
        assume_bandwidth_bytes_s: given(settings.assume_bandwidth_mb_s).map(|mb| mb * 1e6),
        assume_prefill_tokens_s: given(settings.assume_prefill_tokens_s),
        ..router::Params::default()
    }
}

/// Starts one machine's actor.
async fn spawn<M, F>(
    machine: M,
    effect: F,
    board: &Arc<Switchboard>,
    clock: Clock,
) -> Result<ActorRef<Mail<M::In>>, Fault>
where
    M: Machine + Send + 'static,
    M::In: Send + 'static,
    M::Out: Send + 'static,
    F: Fn(M::Out) -> Effect + Send + Sync + 'static,
{
    let parts = Parts { machine, perform: Wired { board: board.clone(), effect }, clock };
    let (actor, _) =
        Actor::spawn(None, Shell::<M, Wired<F>>::new(), parts).await.map_err(internal)?;
    Ok(actor)
}

/// Members the data folder remembers, this node included.
fn roster(home: &Home, membership: &Membership) -> Result<Roster, Fault> {
    let roster = Roster::default();
    for key in home.records.keys("member").map_err(record_fault)? {
        if let Some(known) = get::<KnownMember>(&home.records, "member", &key)? {
            roster.admit(known.cert.clone());
            roster.locate(&known.cert.node, &known.contact);
        }
    }
    roster.admit(membership.cert.clone());
    roster.locate(&home.node(), &home.contact());
    Ok(roster)
}

/// The key of the admin verbs: made once, kept in `DIR/admin-key`.
fn admin_key(dir: &Path) -> Result<Zeroizing<String>, Fault> {
    let file = dir.join("admin-key");
    if let Ok(text) = read_text(&file) {
        return Ok(Zeroizing::new(text.trim().to_owned()));
    }
    let hex: Vec<String> = entropy::<24>()?.iter().map(|b| format!("{b:02x}")).collect();
    let key = Zeroizing::new(hex.concat());
    write_secret(&file, &key, true)?;
    Ok(key)
}

/// Runs the node until it is told to stop. `peers` are addresses of members that the user named.
pub(super) async fn run(
    home: Home,
    mut membership: Membership,
    peers: Vec<SocketAddr>,
) -> Result<(), Fault> {
    if membership.renew(Clock::unix()) {
        put(&home.records, "cluster", b"self", &membership)?;
    }
    let clock = Clock::start();
    let listeners = Listeners::bind(&home.config.http)?;
    let host = Arc::new(NodeHost::new());
    let transfer = bind_transfer(&home, &membership, host.clone())?;
    let (rim_commands, rim_orders) = mpsc::channel(rim::COMMANDS_MAX);
    let (rim_happened, happened) = mpsc::channel(GOSSIP_MAIL_MAX);
    let rim_task = rim::start(
        &home.keypair,
        membership.swarm_key,
        home.config.cluster.listen,
        &home.config.node.site,
        rim_orders,
        rim_happened,
    )?;
    for peer in peers {
        let _ = rim_commands.try_send(rim::Command::Dial(peer));
    }
    let (home, served) = tokio::task::spawn_blocking(move || {
        let served = serve_model(&home, clock);
        served.map(|served| (home, served))
    })
    .await
    .map_err(internal)??;
    let (news, news_orders) = mpsc::unbounded_channel();
    let (fetches, fetch_orders) = mpsc::unbounded_channel();
    let board = Arc::new(Switchboard::new(rim_commands.clone(), news, fetches));
    let (built, placement) = build_machines(&home, &membership, &served, clock)?;
    let queue = Queue::start(home.config.engine.window(), clock).await?;
    let roster = roster(&home, &membership)?;
    let others = roster.all().len() > 1;
    let node = Arc::new(Node {
        clock,
        id: home.node(),
        incarnation: home.incarnation,
        board: board.clone(),
        roster,
        placement,
        queue,
        leases: crate::run::LeaseCounter::default(),
        dram: served.dram,
        engines: served
            .engines
            .iter()
            .map(|(id, engine)| (*id, LocalEngine::new(engine.spec().clone())))
            .collect(),
        catalog: Catalog::new(served.model, &home.config.node.data_dir.join("cards"), others),
        engine_mail: Arc::new(Semaphore::new(actors::engine::EVENTS_MAX)),
        gossip_mail: Arc::new(Semaphore::new(GOSSIP_MAIL_MAX)),
        state_mail: Arc::new(Semaphore::new(STATE_MAIL_MAX)),
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        records: home.records.clone(),
        state: crate::state::StateHandle::new(board.clone()),
        membership: RwLock::new(membership),
        contact: RwLock::new(home.contact()),
        views: RwLock::new(BTreeMap::new()),
        transfer,
        admin_key: admin_key(&home.config.node.data_dir)?,
        draining: false.into(),
        owed: Arc::default(),
        tally: crate::metrics::Tally::default(),
        fault: Mutex::new(None),
        seeds: u64::from_le_bytes(entropy()?).into(),
        config: home.config,
    });
    board.connect_engines(served.engines);
    let (records, orders) = mpsc::channel(state::config::DISK_OPS_MAX);
    board.connect_records(records);
    let writer = actors::records::start(node.records.clone(), &board, orders)?;
    board.connect(Machines {
        gossip: spawn(built.gossip, Effect::Gossip, &board, clock).await?,
        router: spawn(built.router, Effect::Router, &board, clock).await?,
        store: spawn(built.store, Effect::Store, &board, clock).await?,
        state: spawn(built.state, Effect::State, &board, clock).await?,
    });
    if let Some((tier, mut told)) = served.disk {
        board.connect_disk(tier);
        actors::disk::pass_on_all(&*node, &mut told);
        tokio::spawn(actors::disk::run(node.clone(), told));
    }
    host.speak_for(&node);
    tasks::start(&node, rim_commands, happened, news_orders, fetch_orders, served.events);
    let address = listeners.local()?;
    node.engines_started().await;
    node.placeable().await;
    // Whoever gets an answer may stop the node in the next moment, and it shall end in good order.
    let signals = signals();
    listeners.serve(&node);
    node.serving().await;
    // Who started it may have stopped reading; the node goes on.
    let _unread = writeln!(
        std::io::stdout(),
        "ready {} node={} cluster={}",
        node.config.http.url(address),
        node.id,
        node.membership().cluster()
    );
    until_stopped(&node, signals).await;
    stop(&node, rim_task, writer).await
}

fn bind_transfer(
    home: &Home,
    membership: &Membership,
    host: Arc<NodeHost>,
) -> Result<Arc<transfer::Transfer>, Fault> {
    let throttle = home.config.transfer.throttle_mb_s;
    let config = transfer::TransferConfig {
        listen: home.config.cluster.listen,
        udp: home.config.transfer.udp,
        keypair: home.keypair.clone(),
        hello: hello(membership, home.incarnation, home.contact()),
        issuer: membership.issuer,
        // A peer that died takes its requests' engine time no longer than gossip takes to notice.
        limits: transfer::Limits {
            idle: Duration::from_secs(5),
            keep_alive: Duration::from_millis(1500),
            ..transfer::Limits::default()
        },
        throttle_bytes_s: (throttle > 0.0).then_some((throttle * 1e6) as u64),
    };
    transfer::Transfer::bind(config, host).map_err(|error| {
        Fault::new(error, "is another dynamo-node running there? a node takes its port and the next one; choose another with --listen")
    })
}

/// From now on SIGTERM and SIGINT are for [`until_stopped`].
fn signals() -> std::io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

/// Waits for SIGTERM, SIGINT, `leave`, or a fault.
async fn until_stopped(node: &Arc<Node>, signals: std::io::Result<[Signal; 2]>) {
    let Ok([mut term, mut int]) = signals else {
        node.stop.cancelled().await;
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        () = node.stop.cancelled() => return,
    }
    tracing::info!("stopping");
    node.begin_leave();
    node.stop.cancelled().await;
}

async fn stop(
    node: &Arc<Node>,
    rim_task: tokio::task::JoinHandle<()>,
    writer: std::thread::JoinHandle<()>,
) -> Result<(), Fault> {
    node.tasks.close();
    if tokio::time::timeout(STOP_WITHIN, node.tasks.wait()).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut");
    }
    node.transfer.close().await;
    let disk = node.board.disk();
    if disk.is_some() {
        actors::disk::flush(node).await;
        node.board.disconnect_disk();
    }
    if let Some(machines) = node.board.machines() {
        machines.gossip.stop(None);
        machines.router.stop(None);
        machines.store.stop(None);
        machines.state.stop(None);
    }
    rim_task.abort();
    node.board.disconnect_records();
    let _ = tokio::task::spawn_blocking(move || writer.join()).await;
    // Its threads end, and the last removals become durable.
    let _ = tokio::task::spawn_blocking(move || drop(disk)).await;
    let fault = node.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    fault.map_or(Ok(()), Err)
}
