//! How a client reads: at once, slowly, or not to the end.

use crate::dice::Dice;
use crate::mail::Event;
use crate::world::World;
use protocol::id::RequestId;
use protocol::prompt::StreamItem;
use protocol::time::Span;
use std::collections::VecDeque;

/// Items that wait for a slow reader before the stream is held back, and when it goes on.
const BUFFER: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Time for each item.
    slow: Option<Span>,
    /// Leaves so long after it asked…
    leaves_after: Option<Span>,
    /// … or after so many items.
    leaves_at: Option<u32>,
    items: u32,
    buffer: VecDeque<StreamItem>,
    held: bool,
    busy: bool,
}

impl Reader {
    pub(super) fn drawn(dice: &mut Dice, slow: f64, vanishing: f64, max_tokens: u32) -> Self {
        let mut reader = Self::default();
        if dice.share(slow) {
            reader.slow = Some(dice.span(Span::millis(20), Span::millis(200)));
        }
        if dice.share(vanishing) {
            match dice.share(0.5) {
                true => reader.leaves_after = Some(dice.span(Span::ZERO, Span::millis(500))),
                false => {
                    let at = dice.between(1, u64::from(max_tokens) + 1);
                    reader.leaves_at = Some(u32::try_from(at).unwrap_or(1));
                }
            }
        }
        reader
    }

    pub(super) fn leaves_after(&self) -> Option<Span> {
        self.leaves_after
    }
}

impl World {
    /// An item is there for the client.
    pub(super) fn reader_gets(&mut self, id: RequestId, item: StreamItem) {
        let now = self.now;
        let Some(open) = self.clients.open.get_mut(&id) else { return };
        let (h, reader) = (open.host, &mut open.reader);
        let Some(slow) = reader.slow else { return self.reader_takes(id, item) };
        reader.buffer.push_back(item);
        let hold = reader.buffer.len() >= BUFFER && !reader.held;
        reader.held |= hold;
        let begin = !std::mem::replace(&mut reader.busy, true);
        if begin {
            self.plan(now + slow, Event::Reader(id));
        }
        if hold {
            self.hold_back(h, id, true);
        }
    }

    fn reader_takes(&mut self, id: RequestId, item: StreamItem) {
        let Some(open) = self.clients.open.get_mut(&id) else { return };
        open.reader.items += 1;
        if open.reader.leaves_at.is_some_and(|at| open.reader.items >= at) {
            return self.client_leaves(id);
        }
        if matches!(item, StreamItem::Finished(_)) {
            self.client_served(id);
        }
    }

    /// A slow reader takes an item, or a client leaves.
    pub(crate) fn reader_acts(&mut self, id: RequestId) {
        let now = self.now;
        let Some(open) = self.clients.open.get_mut(&id) else { return };
        let (h, reader) = (open.host, &mut open.reader);
        if reader.leaves_after.is_some_and(|after| now >= open.asked_at + after) {
            return self.client_leaves(id);
        }
        let item = reader.buffer.pop_front();
        let go_on = reader.held && reader.buffer.len() <= BUFFER / 2;
        reader.held &= !go_on;
        reader.busy = !reader.buffer.is_empty();
        if let (true, Some(slow)) = (reader.busy, reader.slow) {
            self.plan(now + slow, Event::Reader(id));
        }
        if go_on {
            self.hold_back(h, id, false);
        }
        if let Some(item) = item {
            self.reader_takes(id, item);
        }
    }
}
