//! What the world is made of: memories, sequences, prompts.

use super::*;
use protocol::block::{Generation, SlotRef, StorageNamespace};
use protocol::hash::{RoutingNamespace, Token};

pub(crate) const BLOCK_BYTES: u64 = 16;

#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) block_tokens: u32,
    pub(crate) slots: u32,
    pub(crate) dram: u32,
    pub(crate) nvme: u32,
    pub(crate) buggify: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) engines: u16,
    pub(crate) batch: u32,
}

impl Default for Setup {
    fn default() -> Self {
        let (block_tokens, slots, dram, nvme) = (16, 32, 32, 0);
        Self {
            block_tokens,
            slots,
            dram,
            nvme,
            buggify: None,
            engines: 1,
            batch: 2,
            limits: Limits::default(),
        }
    }
}

/// What lies in a slot, and the newest generation that the store has named for it.
#[derive(Clone, Copy, Default)]
struct Cell {
    generation: Generation,
    content: Option<PrefixHash>,
}

#[derive(Default)]
pub(crate) struct Memory(BTreeMap<u32, Cell>);

impl Memory {
    /// The store names this life of the slot: older ones are over.
    pub(crate) fn name(&mut self, slot: SlotRef) {
        let cell = self.0.entry(slot.slot.0).or_default();
        assert!(slot.generation >= cell.generation, "an older generation of {slot:?} is used");
        cell.generation = slot.generation;
    }

    pub(crate) fn write(&mut self, slot: SlotRef, content: Option<PrefixHash>) {
        self.name(slot);
        self.0.get_mut(&slot.slot.0).unwrap().content = content;
    }

    pub(crate) fn read(&mut self, slot: SlotRef) -> Option<PrefixHash> {
        self.name(slot);
        self.0[&slot.slot.0].content
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blk {
    Todo,
    Arriving,
    Filled,
}

/// A sequence in a fake engine.
pub(crate) struct Seq {
    pub(crate) engine: EngineId,
    pub(crate) tokens: Vec<Token>,
    pub(crate) most: usize,
    pub(crate) slots: Vec<SlotRef>,
    pub(crate) blocks: Vec<Blk>,
    pub(crate) submitted: bool,
    pub(crate) empty_grants: u32,
}

pub(crate) fn prompt(family: u32, n: usize) -> Vec<Token> {
    (0..n as u32).map(|i| Token(family * 10_000 + i)).collect()
}

pub(crate) fn shared(common: usize, family: u32, n: usize) -> Vec<Token> {
    let mut tokens = prompt(0, common);
    tokens.extend(prompt(family, n).into_iter().skip(common));
    tokens
}

pub(crate) fn namespaces(block_tokens: u32) -> (RoutingNamespace, StorageNamespace) {
    let routing =
        RoutingNamespace { weights: [1; 32], tokenizer: [2; 32], lora: None, hash_version: 1 };
    let storage = StorageNamespace {
        block_tokens,
        kv_dtype: "f32".into(),
        layout: "test".into(),
        block_bytes: BLOCK_BYTES,
        parts: Vec::new(),
        groups: Vec::new(),
    };
    (routing, storage)
}
