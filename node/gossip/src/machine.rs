//! The machine: its state, its one door, its clock.

use crate::buggify::Buggify;
use crate::config::Config;
use crate::counters::Counters;
use crate::donate::Donations;
use crate::door::{In, Out};
use crate::health::Health;
use crate::members::Member;
use crate::own::OwnLog;
use crate::probe::Probe;
use crate::snapshots::Bootstrap;
use crate::twin::Echoes;
use protocol::event::{
    BlockEvent, Contact, EngineReport, Heartbeat, MemberState, MemberView, Suspicion,
};
use protocol::id::{Incarnation, NodeId};
use protocol::machine::Machine;
use protocol::time::{Span, Time};
use protocol::trust::{MemberCert, UnixTime};
use protocol::wire::gossip::{Direct, Published};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;

/// How often members, gaps and dials are looked through.
const SWEEP_EVERY: Span = Span::millis(100);

/// What the own heartbeat says beside the head.
#[derive(Debug, Default)]
struct Report {
    engines: Vec<EngineReport>,
    owed_bytes: u64,
    blocks: [u64; 3],
    draining: bool,
}

/// One node's gossip machine.
#[derive(Debug)]
pub struct Gossip {
    pub(crate) config: Config,
    pub(crate) node: NodeId,
    pub(crate) own: OwnLog,
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub(crate) wall: UnixTime,
    /// When that was told, and since when the clock tells something far from it.
    pub(crate) wall_at: Time,
    pub(crate) jumped: Option<Time>,
    pub(crate) counters: Counters,
    pub(crate) echoes: Echoes,
    pub(crate) probes: BTreeMap<u64, Probe>,
    pub(crate) bootstrap: Bootstrap,
    /// Sets served lately: (to whom, whose).
    pub(crate) cuts: BTreeMap<(NodeId, Option<NodeId>), Time>,
    /// When own changes are told; none waits when it is `None`.
    pub(crate) flush_at: Option<Time>,
    /// The deadline as last told: being called much later is a stall.
    pub(crate) due: Time,
    pub(crate) stall_credited: Time,
    pub(crate) health: Health,
    /// Suspicions to be told at the next sweep.
    pub(crate) accused: Vec<Suspicion>,
    pub(crate) donations: Donations,
    pub(crate) luck: Buggify,
    /// The newest own heartbeat, and when it was made.
    pub(crate) last_beat: Option<Box<Heartbeat>>,
    pub(crate) beat_told: Time,
    report: Report,
    beat: u64,
    beat_at: Time,
    sweep_at: Time,
    left: bool,
    rng: ChaCha8Rng,
}

impl Gossip {
    /// A machine that begins at `now`, knowing no other member.
    pub fn new(config: Config, now: Time) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        // Nodes that start together must not beat together for ever.
        let phase = Span(below(&mut rng, config.heartbeat_every.0));
        let own = OwnLog::new(config.keypair.clone(), config.incarnation, config.keep_own);
        let mut new = Self {
            node: config.node(),
            own,
            members: BTreeMap::new(),
            wall: UnixTime(0),
            wall_at: now,
            jumped: None,
            counters: Counters::default(),
            echoes: Echoes::default(),
            probes: BTreeMap::new(),
            bootstrap: Bootstrap::default(),
            cuts: BTreeMap::new(),
            flush_at: None,
            due: now,
            stall_credited: Time::ZERO,
            health: Health::default(),
            accused: Vec::new(),
            donations: Donations::default(),
            luck: Buggify::new(config.buggify),
            last_beat: None,
            beat_told: Time::ZERO,
            report: Report::default(),
            beat: 0,
            beat_at: now + phase,
            sweep_at: now + SWEEP_EVERY,
            left: false,
            rng,
            config,
        };
        new.due = new.next();
        new
    }

    /// Counters since start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// This node and all other members, as they are known now.
    pub fn members(&self) -> impl Iterator<Item = MemberView> + '_ {
        std::iter::once(self.own_view()).chain(self.members.values().map(Member::view))
    }

    /// Batches of others that exist and have not reached the index: its lag.
    pub fn behind(&self) -> u64 {
        self.members.values().map(|member| member.replica.behind()).sum()
    }

    /// A random number below `n` (0 for 0).
    pub(crate) fn random(&mut self, n: u64) -> u64 {
        below(&mut self.rng, n)
    }

    fn own_view(&self) -> MemberView {
        MemberView {
            node: self.node,
            incarnation: self.own.incarnation(),
            state: if self.left {
                MemberState::Left
            } else if self.report.draining {
                MemberState::Draining
            } else {
                MemberState::Alive
            },
            contact: self.config.contact.clone(),
            engines: self.report.engines.clone(),
            owed_bytes: self.report.owed_bytes,
            blocks: self.report.blocks,
        }
    }

    fn event(&mut self, now: Time, event: &BlockEvent) {
        if self.own.event(event) {
            self.counters.events += 1;
            self.flush_at.get_or_insert(now + self.config.batch_every);
        } else {
            self.counters.events_skipped += 1;
        }
    }

    fn report(&mut self, now: Time, report: Report, out: &mut Vec<Out>) {
        let urgent = report.draining != self.report.draining;
        self.report = report;
        out.push(Out::Member(Box::new(self.own_view())));
        if urgent {
            self.publish_heartbeat(now, out);
        }
    }

    pub(crate) fn publish_heartbeat(&mut self, now: Time, out: &mut Vec<Out>) {
        self.beat += 1;
        self.beat_at = now + self.config.heartbeat_every;
        let (head, digest) = self.own.head();
        let mut beat = Heartbeat {
            node: self.node,
            incarnation: self.own.incarnation(),
            beat: self.beat,
            head,
            digest,
            contact: self.config.contact.clone(),
            engines: self.report.engines.clone(),
            owed_bytes: self.report.owed_bytes,
            draining: self.report.draining,
            blocks: self.report.blocks,
            signature: self.config.keypair.sign(b""),
        };
        beat.signature = self.config.keypair.sign(&beat.signed_bytes());
        self.beat_told = now;
        self.last_beat = Some(Box::new(beat.clone()));
        out.push(Out::Publish(Published::Heartbeat(Box::new(beat))));
    }

    fn direct(&mut self, now: Time, from: NodeId, frame: Direct, out: &mut Vec<Out>) {
        if let Direct::Hello(hello) = frame {
            return self.greeted(now, from, *hello, out);
        }
        let Some(member) = self.members.get(&from) else {
            self.counters.strangers += 1;
            return;
        };
        let ready = member.is_ready();
        if ready {
            self.heard(now, &from, false, out);
        }
        match frame {
            // Signed, so it counts whoever brings it: this is how a node that fell back in time
            // learns of its later life, from a peer that does not greet it.
            Direct::Batches(batches) => self.batches(now, from, batches, out),
            // So is this, and a twin may be greeted by nobody.
            Direct::Echo(beat) if beat.node == self.node => self.heartbeat(now, beat, out),
            _ if !ready => self.counters.improper += 1,
            Direct::Members(certs) => {
                let mut news: Vec<MemberCert> = Vec::new();
                for cert in certs {
                    if self.learn_cert(now, cert.clone(), Contact::default(), out) {
                        news.push(cert);
                    }
                }
                self.spread_certs(&news, Some(from), out);
            }
            Direct::Want { origin, incarnation, from: first, to } => {
                self.serve_want(now, from, (origin, incarnation), (first, to), out);
            }
            Direct::WantSnapshot { origin } => self.serve_snapshot(now, from, origin, out),
            Direct::Snapshots(snapshots) => self.snapshots(now, from, snapshots, out),
            Direct::Goodbye { incarnation } => self.goodbye(from, incarnation, out),
            Direct::WantBuckets(wanted) => self.serve_buckets(now, from, wanted, out),
            Direct::Buckets(part) => self.buckets(now, from, *part, out),
            Direct::Heard(beat) => self.heartbeat(now, beat, out),
            Direct::Suspects(suspicions) => self.suspected(now, from, suspicions, out),
            Direct::Probe { nonce } => self.probed(from, nonce, out),
            Direct::Ack { nonce } => self.acked(now, from, nonce, out),
            Direct::ProbeFor { subject, nonce } => {
                self.probe_for(now, from, subject, nonce, out);
            }
            Direct::Hello(_) => {}
            // The shell takes frames about records elsewhere.
            Direct::Echo(_) | Direct::State(_) => self.counters.improper += 1,
        }
    }

    fn reborn(&mut self, now: Time, incarnation: Incarnation, out: &mut Vec<Out>) {
        let old = self.own.incarnation();
        if incarnation <= old {
            return;
        }
        self.own.reborn(incarnation);
        self.config.incarnation = incarnation;
        self.beat = 0;
        out.push(Out::Forget { node: self.node, incarnation: old });
        out.push(Out::Member(Box::new(self.own_view())));
        self.greet_all(now, out);
        self.flush(out);
        self.publish_heartbeat(now, out);
    }

    fn take(&mut self, now: Time, input: In, out: &mut Vec<Out>) {
        match input {
            In::Event(event) => self.event(now, &event),
            In::Report { engines, owed_bytes, blocks, draining } => {
                self.report(now, Report { engines, owed_bytes, blocks, draining }, out);
            }
            In::Connected(node) => self.connected(now, node, out),
            In::Disconnected(node) => self.disconnected(now, node, out),
            In::Direct { from, frame } => self.direct(now, from, frame, out),
            In::Published { frame: Published::Heartbeat(beat), .. } => {
                self.heartbeat(now, beat, out);
            }
            In::Published { frame: Published::Admitted(cert), .. } => {
                self.admit(now, *cert, Contact::default(), false, out);
            }
            In::Admitted(cert) => self.admit(now, cert, Contact::default(), true, out),
            In::Known { cert, contact } => self.admit(now, cert, contact, false, out),
            In::SnapshotCut { to, snapshots } => self.snapshot_cut(to, snapshots),
            In::BucketsCut { to, buckets } => {
                if let Some(buckets) = buckets {
                    self.send_buckets(to, *buckets);
                }
            }
            In::Diverged { origin, incarnation, seq, buckets } => {
                self.diverged(now, (origin, incarnation), seq, &buckets);
            }
            In::WallClock(wall) => self.wall_clock(now, wall, out),
            In::Reborn(incarnation) => self.reborn(now, incarnation, out),
            In::Leave => {
                self.flush(out);
                self.leave(out);
                self.left = true;
                out.push(Out::Member(Box::new(self.own_view())));
            }
        }
    }

    fn next(&self) -> Time {
        let flush = self.flush_at.unwrap_or(self.sweep_at);
        let donate = self.donations.due(self.config.donate_bytes_s).unwrap_or(self.sweep_at);
        self.beat_at.min(self.sweep_at).min(flush).min(donate)
    }
}

/// Uniform enough for choices among few; `n` of 0 gives 0.
fn below(rng: &mut ChaCha8Rng, n: u64) -> u64 {
    rng.next_u64().checked_rem(n).unwrap_or(0)
}

impl Machine for Gossip {
    type In = In;
    type Out = Out;

    fn handle(&mut self, now: Time, input: In, outbox: &mut Vec<Out>) {
        if self.left {
            return;
        }
        self.note_stall(now);
        self.take(now, input, outbox);
        self.donate(now, outbox);
        // While a tick is overdue this stays in the past, so the stall goes on being measured.
        self.due = self.next();
    }

    fn tick(&mut self, now: Time, outbox: &mut Vec<Out>) {
        if self.left {
            return;
        }
        self.note_stall(now);
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush(outbox);
        }
        if self.beat_at <= now {
            self.publish_heartbeat(now, outbox);
            outbox.push(Out::Member(Box::new(self.own_view())));
        }
        if self.sweep_at <= now {
            self.sweep_at = now + SWEEP_EVERY;
            self.sweep_members(now, outbox);
            self.sweep_donor(now, outbox);
            self.sweep_gaps(now, outbox);
            self.sweep_repairs(now, outbox);
            self.dial(now, outbox);
            self.repeat_hellos(now, outbox);
        }
        self.donate(now, outbox);
        self.due = self.next();
    }

    fn deadline(&self) -> Option<Time> {
        (!self.left).then(|| self.next())
    }
}
