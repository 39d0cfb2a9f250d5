//! A first measurement, so that placement has rates before the first request.

use super::Worker;
use super::load::blocks;
use crate::decoder::Slice;
use crate::meter::Step;
use protocol::hash::Token;
use std::time::Instant;

/// Context of the measurement with context, in tokens.
const CONTEXT: usize = 512;

impl Worker {
    /// Computes a few pieces of a meaningless prompt in the pool's first slots, which nobody has
    /// leased yet: one to fill caches, then one that counts, one after some context, one token.
    pub(super) fn warm_up(&mut self, chunk: usize) {
        let room = self.context.min(self.pool.slots() * crate::pool::BLOCK);
        let chunk = chunk.clamp(1, 64).min(room);
        let far = CONTEXT.min(room - chunk);
        self.try_out(0, chunk);
        for (start, rows) in [(0, chunk), (far, chunk), (room.min(chunk) - 1, 1)] {
            let begun = Instant::now();
            let context = self.try_out(start, rows);
            let elapsed = begun.elapsed();
            let (prefill, decode) = if rows > 1 { (rows, 0) } else { (0, rows) };
            self.meter.step(Step { prefill, decode, context, elapsed });
        }
        self.report_load();
    }

    fn try_out(&mut self, start: usize, rows: usize) -> u64 {
        let positions: Vec<u32> = (start..start + rows).map(|position| position as u32).collect();
        let slots: Vec<usize> = (0..blocks(start + rows)).collect();
        let slice = Slice {
            tokens: &vec![Token(0); rows],
            positions: &positions,
            write: &vec![true; rows],
            slots: &slots,
            logits: true,
        };
        self.decoder.forward(&mut self.pool, &[slice], &mut self.scratch);
        positions.iter().map(|position| u64::from(*position) + 1).sum()
    }
}
