//! What the crash harness reads: books of pages, where a page's prompt begins with all pages before
//! it, as an agent's turns do.

use crate::agents::plain_words;

/// Pages of one book.
const PAGES: usize = 6;
/// Characters of one page; the mock engine's tokens are bytes.
const PAGE: usize = 512;
/// Bytes on disk that one token takes at the most, with the default blocks of the mock engine.
const TOKEN_BYTES: u64 = 1024;

/// How many books take `times / parts` of `limit` bytes on disk, at least one.
pub(super) fn books(limit: u64, times: u64, parts: u64) -> usize {
    let book = (PAGES * PAGE) as u64 * TOKEN_BYTES;
    usize::try_from(limit * times / parts / book).unwrap_or(1).max(1)
}

/// All books, with the answer to each page once it is known.
#[derive(Debug, Clone)]
pub(super) struct Bookshelf {
    seed: u64,
    answers: Vec<Option<Vec<u32>>>,
}

impl Bookshelf {
    pub(super) fn new(seed: u64, books: usize) -> Self {
        Self { seed, answers: vec![None; books * PAGES] }
    }

    /// Pages of all books.
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    /// The prompt of a page: the book so far.
    pub(super) fn prompt(&self, page: usize) -> String {
        let (book, last) = (page / PAGES, page % PAGES);
        let mut text = plain_words(self.seed, book as u64, PAGES * PAGE);
        text.truncate((last + 1) * PAGE);
        text
    }

    pub(super) fn answered(&mut self, page: usize, tokens: Vec<u32>) {
        self.answers[page] = Some(tokens);
    }

    pub(super) fn answer(&self, page: usize) -> Option<&[u32]> {
        self.answers.get(page)?.as_deref()
    }
}
