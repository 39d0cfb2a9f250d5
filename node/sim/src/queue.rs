//! What is going to happen, in order of time, then in the order in which it was planned.

use protocol::time::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Entry<E> {
    at: Time,
    serial: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap gives the greatest, which is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

/// A queue of events of kind `E`.
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    serial: u64,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), serial: 0 }
    }

    /// Plans `event` for `at`.
    pub(crate) fn push(&mut self, at: Time, event: E) {
        self.serial += 1;
        self.heap.push(Entry { at, serial: self.serial, event });
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Takes the next event, if it happens at or before `until`.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, E)> {
        self.next_at().filter(|at| *at <= until)?;
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_in_the_order_of_planning() {
        let mut queue = Queue::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b'), (9, 'z')] {
            queue.push(Time(at), name);
        }
        let order: String =
            std::iter::from_fn(|| queue.pop(Time(8))).map(|(_, name)| name).collect();
        assert_eq!((order.as_str(), queue.next_at()), ("abcd", Some(Time(9))));
    }
}
