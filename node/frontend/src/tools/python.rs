//! Calls as Python writes them: `[f(a=1, b="x"), g()]`.

use super::{Call, Tools, typed};
use serde_json::{Map, Value};

/// How deep lists and dictionaries may stand in one another.
const DEPTH: usize = 64;

/// Reads one call, or a list of calls, whose arguments are literals and all have names.
pub(crate) fn read(text: &str, tools: &Tools) -> Option<Vec<Call>> {
    let mut reader = Reader { rest: text.trim(), tools };
    let mut calls = Vec::new();
    if !reader.take('[') {
        calls.push(reader.call()?);
    } else {
        while !reader.take(']') {
            calls.push(reader.call()?);
            if !reader.take(',') {
                reader.expect(']')?;
                break;
            }
        }
    }
    (reader.rest.trim_start().is_empty() && !calls.is_empty()).then_some(calls)
}

/// As [`read`], where nothing but the content tells a call from an ordinary answer: it must be a
/// list, and every name must be a tool's.
pub(crate) fn read_known(text: &str, tools: &Tools) -> Option<Vec<Call>> {
    let calls = text.trim_start().starts_with('[').then(|| read(text, tools))??;
    calls.iter().all(|call| tools.has(&call.name)).then_some(calls)
}

struct Reader<'a> {
    rest: &'a str,
    tools: &'a Tools,
}

impl<'a> Reader<'a> {
    /// Takes `sign`, with the white space before it, if it comes next.
    fn take(&mut self, sign: char) -> bool {
        let after = self.rest.trim_start().strip_prefix(sign);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, sign: char) -> Option<()> {
        self.take(sign).then_some(())
    }

    /// Takes the longest beginning of signs that `belongs` to it; `None` when there is none.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let (word, rest) = text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()));
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn call(&mut self) -> Option<Call> {
        let name = self.word(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))?;
        // Built-in tools are called as `tool.call(…)`.
        let short = name.strip_suffix(".call");
        let known = |name: &&str| self.tools.has(name);
        let name = if known(&name) { name } else { short.filter(known).unwrap_or(name) };
        self.expect('(')?;
        let schema = self.tools.schema(name);
        let mut arguments = Map::new();
        while !self.take(')') {
            let key = self.word(|c| c.is_alphanumeric() || c == '_')?;
            self.expect('=')?;
            let before = self.rest;
            let value = self.value(DEPTH)?;
            let source = before.get(..before.len() - self.rest.len())?;
            let value = typed::retyped(value, source, typed::property(schema, key), schema);
            arguments.insert(key.to_owned(), value);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Call::new(name, arguments)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let text = self.rest.trim_start();
        match text.chars().next()? {
            quote @ ('"' | '\'') => self.string(quote).map(Value::String),
            '[' => self.list('[', ']', depth),
            '(' => self.list('(', ')', depth),
            '{' => self.dictionary(depth),
            _ => self.atom(),
        }
    }

    fn list(&mut self, open: char, close: char, depth: usize) -> Option<Value> {
        self.expect(open)?;
        let mut values = Vec::new();
        while !self.take(close) {
            values.push(self.value(depth)?);
            if !self.take(',') {
                self.expect(close)?;
                break;
            }
        }
        Some(Value::Array(values))
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        self.expect('{')?;
        let mut values = Map::new();
        while !self.take('}') {
            let Value::String(key) = self.value(depth)? else { return None };
            self.expect(':')?;
            values.insert(key, self.value(depth)?);
            if !self.take(',') {
                self.expect('}')?;
                break;
            }
        }
        Some(Value::Object(values))
    }

    /// A number or one of Python's words; JSON's words do too.
    fn atom(&mut self) -> Option<Value> {
        let word =
            self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_'))?;
        match word {
            "True" | "true" => Some(true.into()),
            "False" | "false" => Some(false.into()),
            "None" | "null" => Some(Value::Null),
            number => {
                let digits =
                    |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
                let plain = number.replace('_', "");
                let exact = serde_json::from_str(&plain).ok().filter(Value::is_number);
                let broken = plain.contains(['.', 'e', 'E']) && plain.chars().all(digits);
                let float = || plain.parse::<f64>().ok().filter(|_| broken);
                exact.or_else(|| serde_json::Number::from_f64(float()?).map(Value::Number))
            }
        }
    }

    fn string(&mut self, quote: char) -> Option<String> {
        self.expect(quote)?;
        let mut out = String::new();
        loop {
            let mut chars = self.rest.chars();
            let c = chars.next()?;
            self.rest = chars.as_str();
            match c {
                c if c == quote => return Some(out),
                '\\' => self.escape(&mut out)?,
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Option<()> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        match c {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            'x' => out.push(char::from_u32(self.hex(2)?)?),
            'U' => out.push(char::from_u32(self.hex(8)?)?),
            'u' => {
                let unit = self.hex(4)?;
                let low = self.rest.strip_prefix("\\u").filter(|_| unit & 0xfc00 == 0xd800);
                let low = low.and_then(|rest| u32::from_str_radix(rest.get(..4)?, 16).ok());
                if let Some(low) = low.filter(|low| low & 0xfc00 == 0xdc00) {
                    self.rest = self.rest.get(6..)?;
                    out.push(char::from_u32(0x10000 + ((unit & 0x3ff) << 10) + (low & 0x3ff))?);
                } else {
                    out.push(char::from_u32(unit).unwrap_or('\u{fffd}'));
                }
            }
            // Python keeps what it does not know.
            other => out.extend(['\\', other]),
        }
        Some(())
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let (hex, rest) = self.rest.split_at_checked(digits)?;
        self.rest = rest;
        u32::from_str_radix(hex, 16).ok()
    }
}

#[cfg(test)]
mod tests;
