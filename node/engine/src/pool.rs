//! The engine's pool: the bytes of its slots, one block of keys and values each.

#[cfg(test)]
mod tests;

use model::ModelConfig;
use protocol::block::{CacheRule, PartSpec, StorageNamespace};

/// Tokens in one block.
pub(crate) const BLOCK: usize = 16;

/// Dimensions of a value that lie side by side.
pub(crate) const VALUES: usize = 16;

/// Order of the elements in a block, by layer: keys as `[kv head, dimension, token]`, then values
/// as `[kv head, dimension / 16, token, dimension % 16]`. So one vector holds the same dimension of
/// 16 keys, and the next one the next dimension; or 16 dimensions of one value, and the next one
/// the next token.
const LAYOUT: &str = "layer(k:head-dim-token,v:head-dim/16-token-dim%16)-1";

/// The storage namespace of the embedded engine for a model: what must be equal for two engines to
/// use each other's blocks. Known before the engine starts, so that pools can be sized.
pub fn storage_namespace(config: &ModelConfig) -> StorageNamespace {
    let shape = BlockShape::of(config);
    StorageNamespace {
        block_tokens: BLOCK as u32,
        kv_dtype: "f32".into(),
        layout: LAYOUT.into(),
        block_bytes: (shape.floats() * size_of::<f32>()) as u64,
        parts: vec![PartSpec {
            group: 0,
            tp_rank: 0,
            first_layer: 0,
            layers: u16::try_from(config.layers).unwrap_or(u16::MAX),
        }],
        groups: vec![CacheRule::Full],
    }
}

/// Sizes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockShape {
    pub(crate) layers: usize,
    pub(crate) kv_heads: usize,
    pub(crate) dim: usize,
}

impl BlockShape {
    pub(crate) fn of(config: &ModelConfig) -> Self {
        Self { layers: config.layers, kv_heads: config.kv_heads, dim: config.head_dim }
    }

    /// Keys (or values) of one head in one layer of a block.
    fn head(self) -> usize {
        self.dim * BLOCK
    }

    /// Keys (or values) of one layer of a block.
    fn half_layer(self) -> usize {
        self.kv_heads * self.head()
    }

    /// Elements of one block.
    pub(crate) fn floats(self) -> usize {
        2 * self.layers * self.half_layer()
    }
}

/// Keys and values of all slots. A slot is one contiguous piece, so a block moves in or out as one
/// copy. Memory is taken from the system when a slot is first written.
pub(crate) struct KvPool {
    shape: BlockShape,
    data: Vec<f32>,
}

impl KvPool {
    pub(crate) fn new(shape: BlockShape, slots: usize) -> Self {
        let mut data = vec![0.0; slots * shape.floats()];
        kernels::prefer_huge_pages(&mut data);
        Self { shape, data }
    }

    pub(crate) fn shape(&self) -> BlockShape {
        self.shape
    }

    pub(crate) fn slots(&self) -> usize {
        self.data.len() / self.shape.floats()
    }

    /// Bytes of one block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.shape.floats() * size_of::<f32>()
    }

    fn layer(&self, slot: usize, layer: usize) -> usize {
        slot * self.shape.floats() + layer * 2 * self.shape.half_layer()
    }

    /// Keys of one head, `[dimension, token]`.
    pub(crate) fn keys(&self, slot: usize, layer: usize, head: usize) -> &[f32] {
        let start = self.layer(slot, layer) + head * self.shape.head();
        &self.data[start..start + self.shape.head()]
    }

    /// Values of one head, the `part`th 16 dimensions: `[token, 16]`.
    pub(crate) fn values(&self, slot: usize, layer: usize, head: usize, part: usize) -> &[f32] {
        let start = self.layer(slot, layer) + self.shape.half_layer() + head * self.shape.head();
        &self.data[start + part * BLOCK * VALUES..][..BLOCK * VALUES]
    }

    /// Writes one token's key and value (`[kv head, dimension]` each) at its place in a block.
    pub(crate) fn write(
        &mut self,
        slot: usize,
        layer: usize,
        token: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let half = self.shape.half_layer();
        let start = self.layer(slot, layer);
        let (keys, values) = self.data[start..start + 2 * half].split_at_mut(half);
        for (place, element) in keys.iter_mut().skip(token).step_by(BLOCK).zip(key) {
            *place = *element;
        }
        for (part, value) in value.chunks_exact(VALUES).enumerate() {
            values[(part * BLOCK + token) * VALUES..][..VALUES].copy_from_slice(value);
        }
    }

    /// Copies a slot out as little-endian bytes; `false` when `into` is too short.
    pub(crate) fn export(&self, slot: usize, into: &mut [u8]) -> bool {
        let floats = self.shape.floats();
        let from = self.data.get(slot * floats..(slot + 1) * floats);
        let into = into.get_mut(..floats * size_of::<f32>());
        let (Some(from), Some(into)) = (from, into) else { return false };
        for (bytes, value) in into.as_chunks_mut::<4>().0.iter_mut().zip(from) {
            *bytes = value.to_le_bytes();
        }
        true
    }

    /// Copies a slot in; `false`, and nothing written, when `from` is too short.
    pub(crate) fn import(&mut self, slot: usize, from: &[u8]) -> bool {
        let floats = self.shape.floats();
        let into = self.data.get_mut(slot * floats..(slot + 1) * floats);
        let from = from.get(..floats * size_of::<f32>());
        let (Some(into), Some(from)) = (into, from) else { return false };
        for (value, bytes) in into.iter_mut().zip(from.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        true
    }
}
