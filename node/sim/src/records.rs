//! The thread that keeps replicated records on a node's disk, in virtual time.

use crate::mail::Mail;
use crate::world::World;
use protocol::event::{MemberState, MemberView};
use protocol::state::{Record, RecordId};
use protocol::time::Span;
use state::{DiskOp, In};
use std::collections::BTreeMap;

/// The longest that a write takes on a disk that is well.
const WRITE_WITHIN: Span = Span::millis(3);

/// Durable records: each with the wall clock's seconds when it was written.
#[derive(Debug, Default)]
pub(crate) struct Folder(BTreeMap<RecordId, (u64, Record)>);

impl Folder {
    /// What lies under a name.
    pub(crate) fn get(&self, id: &RecordId) -> Option<&Record> {
        self.0.get(id).map(|(_, record)| record)
    }
}

impl World {
    /// What a process finds on its disk.
    pub(crate) fn load_records(&mut self, h: usize) -> Vec<Record> {
        let wall = self.wall(h);
        let Some(host) = self.hosts.get(h) else { return Vec::new() };
        let aged = |(at, record): &(u64, Record)| {
            let passed = Span::secs(wall.saturating_sub(*at));
            let ttl = Span(record.ttl.0.saturating_sub(passed.0));
            Record { ttl, ..record.clone() }
        };
        host.records.0.values().map(aged).collect()
    }

    /// An operation for the thread: what it writes is durable after a while, if the process lives.
    pub(crate) fn record_op(&mut self, h: usize, op: DiskOp) {
        let slow =
            self.stormy && self.fates.of("slow records").share(self.scenario.faults.disk_slow);
        let most = if slow { Span::secs(1) } else { WRITE_WITHIN };
        let takes = self.local.span(Span(50_000), most);
        self.mail_after(h, takes, Mail::Record(Box::new(op)));
    }

    /// It is done.
    pub(crate) fn record_done(&mut self, h: usize, op: DiskOp) {
        let wall = self.wall(h);
        let share = self.scenario.faults.disk_sync_errors;
        let fails = self.stormy && self.fates.of("records").share(share);
        match op {
            DiskOp::Write { write, record } => {
                let lies = self.plant_skips_record();
                if let Some(host) = self.hosts.get_mut(h).filter(|_| !fails && !lies) {
                    host.records.0.insert(record.id, (wall, record));
                }
                let written = In::Written { write, durable: !fails };
                self.mail(h, Mail::State(Box::new(written)));
            }
            DiskOp::Erase { write, id } => {
                if let Some(host) = self.hosts.get_mut(h).filter(|_| !fails) {
                    host.records.0.remove(&id);
                }
                self.mail(h, Mail::State(Box::new(In::Written { write, durable: !fails })));
            }
        }
    }

    /// A disk is lost with all records on it.
    pub(crate) fn lose_records(&mut self, h: usize) {
        if let Some(host) = self.hosts.get_mut(h) {
            host.records.0.clear();
        }
        let hosts = &self.hosts;
        self.watch.records.disk_lost(self.now, |id| copies(hosts, id));
    }

    /// All copies of a record on disks.
    pub(crate) fn copies_of(&self, id: &RecordId) -> Vec<Record> {
        copies(&self.hosts, id)
    }

    /// A node starts or stops, which all others must learn.
    pub(crate) fn members_changed(&mut self) {
        self.watch.records.members_changed(self.now);
    }

    /// A node sees another so.
    pub(crate) fn members_seen(&mut self, h: usize, view: &MemberView) {
        let lives = !matches!(view.state, MemberState::Dead | MemberState::Left);
        let seen = (view.incarnation, lives);
        self.watch.records.member_seen(self.now, h, view.node, seen);
    }

    /// Whether all that run see each other.
    pub(crate) fn is_agreed(&self) -> bool {
        let up = self.up();
        up.iter().filter_map(|h| self.hosts.get(*h)?.live.as_ref()).all(|live| {
            let sees =
                |view: &MemberView| !matches!(view.state, MemberState::Dead | MemberState::Left);
            live.gossip.members().filter(sees).count() >= up.len()
        })
    }
}

fn copies(hosts: &[crate::host::Host], id: &RecordId) -> Vec<Record> {
    let kept = hosts.iter().filter(|host| !host.is_gone);
    kept.filter_map(|host| host.records.get(id).cloned()).collect()
}
