//! Request bodies: short questions, and the turns of a session.

use crate::agents::words::Words;
use serde_json::{Value, json};

/// Words of a session's message; about as many tokens again half.
const MESSAGE_WORDS: u32 = 120;
/// Messages of that length that a turn adds.
const TURN_MESSAGES: u32 = 3;
/// Words of one sentence.
const SENTENCE_WORDS: u32 = 12;
/// Bytes of our texts per token of the measured model, about.
const BYTES_PER_TOKEN: usize = 4;
/// The longest output of a short request, as of the comparison with a peer.
pub(super) const SHORT_OUTPUT: u32 = 4;
/// The output of a streamed request.
pub(super) const STREAM_OUTPUT: u32 = 64;
/// The output of a stream that is abandoned: longer than all buffers on its way.
const ABANDONED_OUTPUT: u32 = 4_000;

/// A short question of about 25 tokens; equal numbers give equal ones.
fn question(number: u64) -> Value {
    let mut words = Words::new(1, number);
    json!([{ "role": "user", "content": format!("{} ({number})", words.sentence(SENTENCE_WORDS)) }])
}

fn body(model: &str, messages: &Value, output: u32, stream: bool) -> String {
    json!({ "model": model, "max_tokens": output, "temperature": 0, "stream": stream,
            "messages": messages })
    .to_string()
}

/// A short request with a whole answer.
pub(super) fn short(model: &str, number: u64) -> String {
    body(model, &question(number), SHORT_OUTPUT, false)
}

/// A short request with a streamed answer of 64 tokens.
pub(super) fn stream(model: &str, number: u64) -> String {
    body(model, &question(number), STREAM_OUTPUT, true)
}

/// A short request whose answer nobody reads to its end.
pub(super) fn abandoned(model: &str, number: u64) -> String {
    body(model, &question(number), ABANDONED_OUTPUT, true)
}

/// A request of as many words as a session's turn adds, and nothing before them.
pub(super) fn alone(model: &str, number: u64) -> String {
    let mut session = Session { words: Words::new(number, 1), messages: Vec::new(), bytes: 0 };
    let text = session.text(TURN_MESSAGES * MESSAGE_WORDS);
    let question = json!([{ "role": "user", "content": text }]);
    body(model, &question, SHORT_OUTPUT, false)
}

/// An agent's session: tools, a system prompt, and a history of questions, calls and results.
pub(super) struct Session {
    words: Words,
    messages: Vec<Value>,
    bytes: usize,
}

impl Session {
    /// The session of a seed; sessions of different seeds share nothing but the tools.
    pub(super) fn new(seed: u64) -> Self {
        let mut session = Self { words: Words::new(seed, 0), messages: Vec::new(), bytes: 0 };
        let text = session.text(8 * MESSAGE_WORDS);
        session.push(json!({ "role": "system", "content": text }));
        let question = session.text(MESSAGE_WORDS);
        session.push(json!({ "role": "user", "content": question }));
        session
    }

    fn text(&mut self, words: u32) -> String {
        let sentences: Vec<String> = (0..words.div_ceil(SENTENCE_WORDS))
            .map(|_| self.words.sentence(SENTENCE_WORDS))
            .collect();
        sentences.join(" ")
    }

    fn push(&mut self, message: Value) {
        self.bytes += message.to_string().len();
        self.messages.push(message);
    }

    /// The next turn's question: what was asked so far is answered, after a call of a tool.
    pub(super) fn turn(&mut self) {
        let (question, path) = (self.text(MESSAGE_WORDS), self.text(3));
        let (result, answer) = (self.text(MESSAGE_WORDS), self.text(MESSAGE_WORDS));
        let id = format!("call_{}", self.messages.len());
        let arguments = json!({ "path": path, "lines": [1, self.messages.len()] }).to_string();
        self.push(json!({ "role": "assistant", "content": "", "tool_calls": [
            { "id": id, "type": "function",
              "function": { "name": "read_file", "arguments": arguments } },
        ]}));
        self.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
        self.push(json!({ "role": "assistant", "content": answer }));
        self.push(json!({ "role": "user", "content": question }));
    }

    /// Turns until the history has about so many tokens.
    pub(super) fn grow(&mut self, tokens: u32) {
        while self.bytes < tokens as usize * BYTES_PER_TOKEN {
            self.turn();
        }
    }

    /// The request with all that was said so far.
    pub(super) fn request(&self, model: &str) -> String {
        json!({
            "model": model, "max_tokens": SHORT_OUTPUT, "temperature": 0,
            "messages": self.messages, "tools": tools(),
        })
        .to_string()
    }
}

/// A few tools, as agents send them with every turn.
fn tools() -> Vec<Value> {
    let tool = |name: &str| {
        json!({ "type": "function", "function": {
            "name": name,
            "description": "Reads, writes or looks for lines of a file in the project's folder.",
            "parameters": { "type": "object", "required": ["path"], "properties": {
                "path": { "type": "string", "description": "Path of the file, from the root." },
                "lines": { "type": "array", "items": { "type": "integer" }, "maxItems": 2 },
            }},
        }})
    };
    ["read_file", "write_file", "find", "list", "run"].map(tool).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_only_grows() {
        let mut session = Session::new(7);
        session.grow(5_000);
        let before: Value = serde_json::from_str(&session.request("m")).unwrap();
        session.turn();
        let after: Value = serde_json::from_str(&session.request("m")).unwrap();
        let list = |body: &Value| body["messages"].as_array().unwrap().clone();
        let (before, after) = (list(&before), list(&after));
        assert_eq!(after.len(), before.len() + 4);
        assert!(after.starts_with(&before));
        assert!(Session::new(8).request("m") != Session::new(7).request("m"));
    }

    #[test]
    fn questions_differ_by_their_number_only() {
        assert_eq!(short("m", 3), short("m", 3));
        assert_ne!(short("m", 3), short("m", 4));
        let streamed: Value = serde_json::from_str(&stream("m", 3)).unwrap();
        assert_eq!((&streamed["stream"], &streamed["max_tokens"]), (&json!(true), &json!(64)));
    }
}
