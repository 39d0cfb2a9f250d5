//! The walk along a prompt: how far each holder has it, without holes.

use super::table::{BATCH, Table};
use super::{IndexReader, LANE_SET_EMPTY, Lane, MAX_WORDS, each_lane};
use protocol::hash::PrefixHash;

/// How far a holder has the prompt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Run {
    /// The holder.
    pub lane: Lane,
    /// Granules from the prompt's start that it has, all of them.
    pub granules: u32,
}

/// Retries of a torn read before the entry counts as absent.
const RETRIES: usize = 8;

struct Walk<'a> {
    reader: &'a IndexReader,
    table: &'a Table,
    words: usize,
    /// Lanes that had every granule so far.
    live: [u64; MAX_WORDS],
    /// The last set met: `live` is within it.
    last: u32,
    /// Scratch: content of the set under the eye.
    content: [u64; MAX_WORDS],
    /// Scratch: lanes that the last step ended.
    ended: [u64; MAX_WORDS],
}

enum Step {
    /// Nobody's run ended.
    Same,
    /// Some runs ended (`Walk::ended`), some go on.
    Fewer,
    /// All runs ended.
    Over,
}

impl Walk<'_> {
    /// The set of the granule, with its content read unless it is the last one again.
    fn set(&mut self, hash: PrefixHash) -> u32 {
        for _ in 0..RETRIES {
            let Some(found) = self.table.find(hash) else {
                return LANE_SET_EMPTY;
            };
            if found.set == self.last {
                return found.set;
            }
            self.reader.shared.sets.read(found.set, self.words, &mut self.content);
            if found.still_holds() {
                return found.set;
            }
        }
        LANE_SET_EMPTY
    }

    fn step(&mut self, hash: PrefixHash) -> Step {
        let set = self.set(hash);
        if set == self.last {
            return Step::Same;
        }
        if set == LANE_SET_EMPTY {
            self.content.fill(0);
        }
        self.last = set;
        let (mut lost, mut left) = (0, 0);
        let words = self.live.iter_mut().zip(&mut self.ended).zip(&self.content).take(self.words);
        for ((live, ended), held) in words {
            *ended = *live & !held;
            *live &= held;
            lost |= *ended;
            left |= *live;
        }
        match (left, lost) {
            (0, _) => Step::Over,
            (_, 0) => Step::Same,
            _ => Step::Fewer,
        }
    }
}

impl IndexReader {
    /// How far each holder has the prompt whose granules (every
    /// [`INDEX_GRANULE`](protocol::event::INDEX_GRANULE) tokens) are named `prefix`: the longest
    /// leading run, exact also where a holder has holes. `out` is cleared and filled, shortest
    /// runs first; holders without the first granule are left out.
    pub fn match_prefix(&self, prefix: &[PrefixHash], out: &mut Vec<Run>) {
        out.clear();
        let directory = self.shared.directory.load();
        let table = self.shared.table.load();
        let mut walk = Walk {
            reader: self,
            table: &table,
            words: self.shared.sets.words().min(MAX_WORDS),
            live: [u64::MAX; MAX_WORDS],
            last: u32::MAX,
            content: [0; MAX_WORDS],
            ended: [0; MAX_WORDS],
        };
        let mut close = |ended: &[u64], granules: u32| {
            each_lane(ended, |lane| {
                if let Some(Some(lane)) = directory.get(usize::from(lane.0)) {
                    out.push(Run { lane: *lane, granules });
                }
            });
        };
        let mut granules = 0;
        table.touch(prefix.get(..BATCH).unwrap_or(prefix));
        'walk: for (number, batch) in prefix.chunks(BATCH).enumerate() {
            // While this batch is looked at, the next one is on its way to the cache.
            let next = prefix.get((number + 1) * BATCH..).unwrap_or_default();
            table.touch(next.get(..BATCH).unwrap_or(next));
            for hash in batch {
                let step = walk.step(*hash);
                if granules > 0 && !matches!(step, Step::Same) {
                    close(walk.ended.get(..walk.words).unwrap_or_default(), granules);
                }
                if matches!(step, Step::Over) {
                    break 'walk;
                }
                granules += 1;
            }
        }
        if granules > 0 {
            close(walk.live.get(..walk.words).unwrap_or_default(), granules);
        }
    }
}
