//! NVMe → DRAM: blocks that are wanted again.

use super::{Crossed, Reading};
use crate::inbound::{Arrival, Cause, Source};
use crate::messages::Out;
use crate::store::Store;
use protocol::block::BlockKey;
use protocol::disk::{DiskOp, DiskRead};
use protocol::op::OpId;
use protocol::time::Time;

impl Store {
    /// Begins to read a block into DRAM, as an arrival that `cause` wants; `None` when it is not on
    /// disk, or DRAM has no room.
    pub(crate) fn load(
        &mut self,
        key: &BlockKey,
        cause: Cause,
        deadline: Time,
        out: &mut Vec<Out>,
    ) -> Option<()> {
        let from = self.disk.tier.find(key)?;
        let block = self.disk.tier.copy(from)?;
        let op = self.ops.next();
        let arrival = Arrival {
            key: *key,
            parent: block.parent,
            tokens: block.tokens,
            cause,
            from: Source::Nvme,
            deadline,
            stamp: block.stamp,
            op,
        };
        let to = self.expect(arrival, out)?;
        self.disk.tier.hold(from);
        self.disk.reading.insert(op, Reading { key: *key, from, to: to.slot });
        self.counters.nvme_reads += 1;
        out.push(Out::Disk(DiskOp::Read { op, key: *key, from, to, deadline }));
        Some(())
    }

    /// A read is answered.
    pub(crate) fn disk_read(&mut self, id: OpId, result: DiskRead, out: &mut Vec<Out>) {
        let Some(Reading { key, from, to }) = self.disk.reading.remove(&id) else {
            return self.crossed(id, false, out);
        };
        self.dram.unhold(to);
        self.disk.tier.unhold(from);
        // It may have reached its legal end while it was read.
        let still = self.disk.tier.find(&key) == Some(from);
        match result {
            DiskRead::Verified(signed) if signed.key == key => {
                self.counters.nvme_verified += 1;
                if still {
                    self.disk.tier.mark_read(from);
                }
                return self.arrived(&key, id, signed, out);
            }
            DiskRead::Verified(_) | DiskRead::Corrupt => {
                self.counters.nvme_corrupt += 1;
                if still {
                    self.disk.tier.forget(from, out);
                }
            }
            DiskRead::Failed => self.counters.nvme_failed += 1,
            DiskRead::Late => self.counters.nvme_late += 1,
        }
        self.not_arrived(&key, id, out);
    }

    /// All reads under way have failed: the disk has.
    pub(super) fn fail_reads(&mut self, out: &mut Vec<Out>) {
        let reading: Vec<_> = self.disk.reading.iter().map(|(id, r)| (*id, *r)).collect();
        for (id, Reading { key, from: on_disk, to: dram }) in reading {
            self.dram.hold(dram);
            self.disk.crossed.insert(id, Crossed { key, dram, on_disk });
            self.disk_read(id, DiskRead::Failed, out);
        }
    }
}
