//! Where the elements of a list in a JSON object begin and end.
//!
//! Only for JSON that was read, or that will be: what is no JSON gives no elements or wrong ones, and
//! no error.

/// The elements of a list: places in the JSON's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elements {
    /// Where the first begins, or would.
    pub(crate) first: usize,
    /// Where each ends.
    pub(crate) ends: Vec<usize>,
}

/// The first `most` elements of the list that the object `json` has under `name`; `None` where there
/// is no such list, its name is written with escapes, or an element is neither object nor list.
pub(crate) fn elements(json: &[u8], name: &str, most: usize) -> Option<Elements> {
    let mut cursor = Cursor { json, at: 0 };
    cursor.take(b'{')?;
    while cursor.peek()? != b'}' {
        let begin = cursor.at;
        cursor.string()?;
        let key = json.get(begin + 1..cursor.at - 1)?;
        cursor.take(b':')?;
        if key == name.as_bytes() {
            cursor.take(b'[')?;
            return cursor.list(most);
        }
        cursor.value()?;
        if cursor.peek()? == b',' {
            cursor.at += 1;
        }
    }
    None
}

/// Bytes between the end of one element and the next one, or the end of the list: `None` where
/// neither follows.
pub(crate) fn separator(json: &[u8]) -> Option<usize> {
    let mut cursor = Cursor { json, at: 0 };
    if cursor.peek()? == b']' {
        return Some(cursor.at);
    }
    cursor.take(b',')?;
    matches!(cursor.peek()?, b'{' | b'[').then_some(cursor.at)
}

struct Cursor<'a> {
    json: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn rest(&self) -> &[u8] {
        self.json.get(self.at..).unwrap_or_default()
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().iter().take_while(|byte| is_space(byte)).count();
        self.rest().first().copied()
    }

    /// Goes behind `byte`, which must come.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn list(&mut self, most: usize) -> Option<Elements> {
        let mut ends = Vec::new();
        self.peek()?;
        let first = self.at;
        while ends.len() < most {
            match self.peek()? {
                b']' => break,
                b',' if !ends.is_empty() => self.at += 1,
                _ => {}
            }
            // Numbers and words have no end of their own.
            match self.peek()? {
                b'{' | b'[' => self.nested()?,
                _ => return None,
            }
            ends.push(self.at);
        }
        Some(Elements { first, ends })
    }

    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' | b'[' => self.nested(),
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}');
                self.at += self.rest().iter().position(ends)?;
                Some(())
            }
        }
    }

    /// An object or a list.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            let mark = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
            self.at += self.rest().iter().position(mark)?;
            match self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth = depth.checked_sub(1)?,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', self.rest())?;
            match self.rest().first()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 2,
            }
        }
    }
}
