//! Memory that is read again and again from end to end: the processor looks up fewer places of it
//! where the system keeps it in large pages.

use rustix::mm::{Advice, madvise};

/// A page of most systems; where pages are larger, the system refuses the advice, and nothing is lost.
const PAGE: usize = 4096;

/// Asks the system for large pages under the whole pages of `memory`, best before it is first
/// written. Only advice: what the memory holds stays as it is, and a refusal is no error.
pub fn prefer_huge_pages<T>(memory: &mut [T]) {
    let range = memory.as_mut_ptr_range();
    let (start, end) = (range.start as usize, range.end as usize);
    let first = start.next_multiple_of(PAGE);
    let bytes = (end - end % PAGE).saturating_sub(first);
    if bytes == 0 {
        return;
    }
    let first = range.start.wrapping_byte_add(first - start);
    // SAFETY: the range lies within `memory`, which is borrowed here alone, and this advice changes
    // neither what it holds nor what may be done with it.
    let _ = unsafe { madvise(first.cast(), bytes, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::prefer_huge_pages;

    #[test]
    fn what_the_memory_holds_stays() {
        for length in [0, 1, 1000, 5000, 3 << 20] {
            let mut memory: Vec<u32> = (0..length).collect();
            prefer_huge_pages(&mut memory);
            assert!(memory.iter().copied().eq(0..length));
            let inner = memory.len().min(1);
            prefer_huge_pages(&mut memory[inner..]);
            assert!(memory.iter().copied().eq(0..length));
        }
    }
}
