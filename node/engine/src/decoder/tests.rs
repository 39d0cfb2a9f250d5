//! The tiny model against its reference, and equality of bits however the work is cut.

use super::*;
use crate::pool::BlockShape;
use crate::sampler::choose;
use model::Model;
use proptest::prelude::*;
use protocol::prompt::Sampling;
use std::path::Path;
use std::sync::LazyLock;

const SLOTS: usize = 300;

fn tiny(threads: usize) -> Decoder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
    let model = Model::open(&folder).expect("the fixture opens");
    load(&model, 4096, Threads::new(threads)).expect("the fixture loads")
}

static TINY: LazyLock<Decoder> = LazyLock::new(|| tiny(1));

fn pool() -> KvPool {
    let d = &TINY;
    KvPool::new(BlockShape { layers: d.layers.len(), kv_heads: d.kv_heads, dim: d.dim }, SLOTS)
}

/// One sequence at known slots, computed by hand.
struct Run {
    tokens: Vec<Token>,
    slots: Vec<usize>,
}

impl Run {
    /// Slots from `first` on, every second one.
    fn new(tokens: Vec<Token>, first: usize) -> Self {
        let slots = (0..(tokens.len() + 40).div_ceil(BLOCK)).map(|b| first + 2 * b).collect();
        Self { tokens, slots }
    }

    fn slice<'a>(&'a self, positions: &'a [u32], write: &'a [bool]) -> Slice<'a> {
        let first = positions[0] as usize;
        let tokens = &self.tokens[first..first + positions.len()];
        Slice { tokens, positions, write, slots: &self.slots, logits: true }
    }
}

/// Logits after `run`'s tokens `from..to`, as bits, computed as one chunk beside `others` rows of
/// another sequence.
fn chunk(
    d: &Decoder,
    pool: &mut KvPool,
    run: &Run,
    from: usize,
    to: usize,
    others: usize,
) -> Vec<u32> {
    let positions: Vec<u32> = (from as u32..to as u32).collect();
    let write = vec![true; positions.len()];
    let other = Run::new((0..others as u32).map(|i| Token(i * 13 % 1000)).collect(), 200);
    let other_positions: Vec<u32> = (0..others as u32).collect();
    let other_write = vec![true; others];
    let mut slices = vec![run.slice(&positions, &write)];
    if others > 0 {
        slices.insert(0, other.slice(&other_positions, &other_write));
    }
    let mut scratch = Scratch::default();
    let logits = d.forward(pool, &slices, &mut scratch);
    let own = &logits[logits.len() - d.vocab()..];
    own.iter().map(|value| value.to_bits()).collect()
}

fn token_by_token(tokens: &[Token]) -> Vec<u32> {
    let run = Run::new(tokens.to_vec(), 0);
    let mut pool = pool();
    (0..tokens.len()).map(|i| chunk(&TINY, &mut pool, &run, i, i + 1, 0)).last().unwrap()
}

fn cuts(tokens: usize, seeds: &[u8]) -> Vec<usize> {
    let mut cuts: Vec<usize> = seeds.iter().map(|s| *s as usize * tokens / 256).collect();
    cuts.extend([0, tokens]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn logits_have_equal_bits_for_all_chunks_neighbours_and_cached_parts(
        ids in prop::collection::vec(0u32..1000, 1..150),
        seeds in prop::collection::vec(any::<u8>(), 0..6),
        others in 0usize..20,
        cached in any::<prop::sample::Index>(),
    ) {
        let tokens: Vec<Token> = ids.iter().map(|id| Token(*id)).collect();
        let expected = token_by_token(&tokens);

        let run = Run::new(tokens.clone(), 1);
        let mut source = pool();
        let cuts = cuts(tokens.len(), &seeds);
        let mut last = Vec::new();
        for pair in cuts.windows(2) {
            last = chunk(&TINY, &mut source, &run, pair[0], pair[1], others);
        }
        prop_assert!(last == expected, "chunks at {:?} beside {} rows", cuts, others);

        // A part of the blocks moves to another pool, the rest is computed there.
        let blocks = cached.index((tokens.len() - 1) / BLOCK + 1);
        let elsewhere = Run::new(tokens.clone(), 50);
        let mut target = pool();
        let mut bytes = vec![0; target.block_bytes()];
        for block in 0..blocks {
            prop_assert!(source.export(run.slots[block], &mut bytes));
            prop_assert!(target.import(elsewhere.slots[block], &bytes));
        }
        let rest = chunk(&TINY, &mut target, &elsewhere, blocks * BLOCK, tokens.len(), others);
        prop_assert!(rest == expected, "{blocks} blocks imported");
    }
}

#[test]
fn a_row_that_is_not_written_leaves_the_pool_alone() {
    let run = Run::new((0..32).map(Token).collect(), 0);
    let mut pool = pool();
    let expected = chunk(&TINY, &mut pool, &run, 0, 32, 0);
    let mut before = vec![0; pool.block_bytes()];
    pool.export(run.slots[1], &mut before);
    let changed = Run { tokens: (100..132).map(Token).collect(), slots: run.slots.clone() };
    let mut scratch = Scratch::default();
    TINY.forward(&mut pool, &[changed.slice(&[31], &[false])], &mut scratch);
    let mut after = vec![0; pool.block_bytes()];
    pool.export(run.slots[1], &mut after);
    assert!(before == after);
    let again = TINY.forward(&mut pool, &[run.slice(&[31], &[false])], &mut scratch);
    assert!(again.iter().map(|value| value.to_bits()).eq(expected));
}

#[test]
fn threads_do_not_change_bits() {
    let run = Run::new((0..400).map(|i| Token(i * 31 % 1000)).collect(), 0);
    let one = chunk(&TINY, &mut pool(), &run, 0, 400, 0);
    let three = chunk(&tiny(3), &mut pool(), &run, 0, 400, 0);
    assert!(one == three);
}

#[derive(serde::Deserialize)]
struct Reference {
    name: String,
    prompt_ids: Vec<u32>,
    output_ids: Vec<u32>,
}

#[test]
fn greedy_ids_equal_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/reference/tiny-qwen3.json");
    let text = std::fs::read(path).expect("the reference is there");
    let references: Vec<Reference> = serde_json::from_slice(&text).expect("the reference is JSON");
    assert!(references.len() >= 20);
    for Reference { name, prompt_ids, output_ids } in references {
        let mut run = Run::new(prompt_ids.iter().map(|id| Token(*id)).collect(), 0);
        let mut pool = pool();
        let prompt = run.tokens.len();
        let mut logits = Vec::new();
        for from in (0..prompt).step_by(64) {
            logits = chunk(&TINY, &mut pool, &run, from, (from + 64).min(prompt), 0);
        }
        for expected in output_ids {
            let values: Vec<f32> = logits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let token = choose(&values, &Sampling::GREEDY, run.tokens.len());
            assert_eq!(token.0, expected, "{name} at {}", run.tokens.len() - prompt);
            run.tokens.push(token);
            let len = run.tokens.len();
            logits = chunk(&TINY, &mut pool, &run, len - 1, len, 0);
        }
    }
}
