//! Sharing one piece of work among a few threads.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// Below so many multiplications a piece of work is not worth the threads' start (some tens of
/// microseconds).
const WORTH_THREADS: usize = 4 << 20;

/// How many threads may share one step of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads(usize);

impl Threads {
    pub(crate) fn new(threads: usize) -> Self {
        Self(threads.max(1))
    }

    /// How many threads [`Self::split`] would use.
    pub(crate) fn count(self, items: usize, work: usize) -> usize {
        self.0.min(items).min(work / WORTH_THREADS + 1).max(1)
    }

    /// Splits `0..items` into one range per thread and runs `part` on each; results come in order
    /// of the ranges. `work` is the number of multiplications of the whole: small work stays on
    /// this thread, as one range.
    pub(crate) fn split<T: Send>(
        self,
        items: usize,
        work: usize,
        part: impl Fn(Range<usize>) -> T + Sync,
    ) -> Vec<T> {
        let threads = self.count(items, work);
        let border = |thread: usize| items * thread / threads;
        let part = &part;
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|thread| scope.spawn(move || part(border(thread)..border(thread + 1))))
                .collect();
            let mut results = vec![part(0..border(1))];
            for other in others {
                match other.join() {
                    Ok(result) => results.push(result),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            results
        })
    }
}
