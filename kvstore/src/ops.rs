//! Operations under way: what each holds until it is answered.

use protocol::block::{BlockKey, SignedDigest, SlotId};
use protocol::id::EngineId;
use protocol::op::{LeaseId, OpId};
use std::collections::BTreeMap;

/// DRAM → engine. Both slots are held.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) engine: EngineId,
    pub(crate) lease: LeaseId,
    pub(crate) index: u32,
    pub(crate) to: SlotId,
    pub(crate) from: SlotId,
    pub(crate) key: BlockKey,
}

/// Engine → DRAM. Both slots are held.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) engine: EngineId,
    pub(crate) key: BlockKey,
    pub(crate) from: SlotId,
    pub(crate) to: SlotId,
    /// The producer's digest, when the block came from elsewhere or was written before.
    pub(crate) known: Option<Box<SignedDigest>>,
}

/// Peer → DRAM. The slots of blocks not yet decided are held.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) blocks: Vec<Wanted>,
    pub(crate) cancelled: bool,
}

/// One block of a fetch.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) key: BlockKey,
    pub(crate) to: SlotId,
    pub(crate) decided: bool,
}

/// All operations under way.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    imports: BTreeMap<OpId, Import>,
    exports: BTreeMap<OpId, Export>,
    fetches: BTreeMap<OpId, Fetch>,
    last: u64,
}

impl Ops {
    /// The id of the next operation.
    pub(crate) fn next(&mut self) -> OpId {
        self.last += 1;
        OpId(self.last)
    }

    pub(crate) fn len(&self) -> usize {
        self.imports.len() + self.exports.len() + self.fetches.len()
    }

    pub(crate) fn import(&mut self, id: OpId, op: Import) {
        self.imports.insert(id, op);
    }

    pub(crate) fn export(&mut self, id: OpId, op: Export) {
        self.exports.insert(id, op);
    }

    pub(crate) fn fetch(&mut self, id: OpId, op: Fetch) {
        self.fetches.insert(id, op);
    }

    /// Ends an import, if it is one of this engine's.
    pub(crate) fn end_import(&mut self, engine: EngineId, id: OpId) -> Option<Import> {
        self.imports.get(&id).filter(|op| op.engine == engine)?;
        self.imports.remove(&id)
    }

    /// Ends an export, if it is one of this engine's.
    pub(crate) fn end_export(&mut self, engine: EngineId, id: OpId) -> Option<Export> {
        self.exports.get(&id).filter(|op| op.engine == engine)?;
        self.exports.remove(&id)
    }

    pub(crate) fn end_fetch(&mut self, id: OpId) -> Option<Fetch> {
        self.fetches.remove(&id)
    }

    pub(crate) fn fetching(&mut self, id: OpId) -> Option<&mut Fetch> {
        self.fetches.get_mut(&id)
    }

    pub(crate) fn imports_of(&self, engine: EngineId) -> Vec<OpId> {
        let of = self.imports.iter().filter(|(_, op)| op.engine == engine);
        of.map(|(id, _)| *id).collect()
    }

    pub(crate) fn exports_of(&self, engine: EngineId) -> Vec<OpId> {
        let of = self.exports.iter().filter(|(_, op)| op.engine == engine);
        of.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
impl Ops {
    /// Slots that operations hold: (engine, its slot) and DRAM slots.
    pub(crate) fn holds(&self) -> (Vec<(EngineId, SlotId)>, Vec<SlotId>) {
        let (imports, exports) = (self.imports.values(), self.exports.values());
        let to = imports.clone().map(|op| (op.engine, op.to));
        let engine = to.chain(exports.clone().map(|op| (op.engine, op.from))).collect();
        let wanted = self.fetches.values().flat_map(|op| &op.blocks).filter(|w| !w.decided);
        let dram = imports.map(|op| op.from).chain(exports.map(|op| op.to));
        (engine, dram.chain(wanted.map(|wanted| wanted.to)).collect())
    }
}
