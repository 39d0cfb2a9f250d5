//! What other nodes ask of this one as an owner.

use crate::copies::Copy;
use crate::door::Out;
use crate::machine::State;
use crate::table::Waiter;
use protocol::id::NodeId;
use protocol::state::{Record, RecordId, Version};
use protocol::time::Time;
use protocol::wire::state::StateFrame;

impl State {
    /// A node wants a write kept here.
    pub(crate) fn asked_to_keep(
        &mut self,
        now: Time,
        from: NodeId,
        (op, record): (u64, Record),
        out: &mut Vec<Out>,
    ) {
        if !Self::is_proper(&record) {
            self.counters.improper += 1;
            return;
        }
        let refuse = Out::Send { to: from, frame: StateFrame::NotKept { op } };
        if self.view.is_leaving() {
            // A copy on a disk that goes away is none.
            return out.push(refuse);
        }
        let waiter = Waiter::Put(from, op);
        let again = self.table.get(now, &record.id);
        if again.is_some_and(|held| held.waiters.contains(&waiter)) {
            return;
        }
        match self.keep(now, record, Some(waiter), out) {
            Copy::Durable => {
                self.counters.acks += 1;
                out.push(Out::Send { to: from, frame: StateFrame::Kept { op } });
            }
            Copy::Older(version) => {
                out.push(Out::Send { to: from, frame: StateFrame::Newer { op, version } });
            }
            Copy::NoRoom(_) => out.push(refuse),
            Copy::Writing => {}
        }
    }

    /// A node asks what is held here.
    pub(crate) fn asked_for(
        &mut self,
        now: Time,
        from: NodeId,
        (op, id, than, value): (u64, RecordId, Option<Version>, bool),
        out: &mut Vec<Out>,
    ) {
        let held = self.table.get(now, &id);
        let newest = held.map(|held| held.newest());
        let record = held
            .filter(|held| value && than.is_none_or(|than| held.version > than))
            .map(|held| held.record(now, id));
        out.push(Out::Send { to: from, frame: StateFrame::Got { op, newest, record } });
    }
}
