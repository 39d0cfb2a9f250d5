//! Public failures of other servers in agent use, one row each: what is sent, what the model says,
//! what must hold. A row is one instance of a kind; the kinds are the properties of the other
//! modules.
//!
//! A: Messages, B: Chat Completions, C: Responses, D: transport and errors.

mod a;
mod b;
mod c;
mod d;

use crate::cluster::{CACHED, CHAT, Fake, MESSAGES, RESPONSES, Reply, Script, posted, say, tiny};
use crate::sse::{assert_one_answer, events};
use frontend::Limits;
use model::Model;
use protocol::hash::Token;
use protocol::prompt::{FinishReason, Prompt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// One request of a row, and what the cluster says to it.
pub(crate) struct Ask {
    path: &'static str,
    body: Value,
    says: Script,
    context: u32,
    model: Arc<Model>,
}

impl Ask {
    fn new(path: &'static str, body: Value) -> Self {
        Self { path, body, says: say("ok"), context: 4096, model: tiny() }
    }

    /// The model says `text`, token by token.
    fn says(self, text: &str) -> Self {
        self.scripted(text, FinishReason::Stop(Token(2)))
    }

    /// The model is cut by its limit after `text`.
    fn cut_after(self, text: &str) -> Self {
        self.scripted(text, FinishReason::Length)
    }

    fn scripted(mut self, text: &str, reason: FinishReason) -> Self {
        self.says = Script::Say { text: text.into(), batch: 1, reason };
        self
    }

    fn script(mut self, says: Script) -> Self {
        self.says = says;
        self
    }

    fn context(mut self, tokens: u32) -> Self {
        self.context = tokens;
        self
    }

    fn on(mut self, model: Arc<Model>) -> Self {
        self.model = model;
        self
    }
}

fn chat(body: Value) -> Ask {
    Ask::new(CHAT, body)
}

/// `max_tokens`, which Messages demands, is filled in.
fn messages(mut body: Value) -> Ask {
    if body.get("max_tokens").is_none() {
        body["max_tokens"] = json!(64);
    }
    Ask::new(MESSAGES, body)
}

fn responses(body: Value) -> Ask {
    Ask::new(RESPONSES, body)
}

/// What came of a request: its whole answer, its stream, and the prompt that the cluster got.
pub(crate) struct Told {
    unary: Reply,
    stream: Reply,
    prompt: Option<Prompt>,
    model: Arc<Model>,
}

impl Told {
    fn status(&self) -> u16 {
        self.unary.status.as_u16()
    }

    fn body(&self) -> Value {
        self.unary.json()
    }

    /// The data of the stream's events that have this name, or any.
    fn events(&self, name: &str) -> Vec<Value> {
        let data = |(_, data): (String, String)| serde_json::from_str(&data).unwrap();
        let mut events = events(&self.stream.text);
        events.retain(|(event, data)| data != "[DONE]" && (name.is_empty() || event == name));
        events.into_iter().map(data).collect()
    }

    fn prompt(&self) -> &Prompt {
        self.prompt.as_ref().unwrap_or_else(|| panic!("not served: {}", self.unary.text))
    }

    fn tokens(&self) -> &[Token] {
        &self.prompt().tokens
    }

    /// The prompt as text, control tokens left out.
    fn text(&self) -> String {
        crate::templates::text(&self.model, self.tokens())
    }

    /// The prompt without the beginning of the answer.
    fn history(&self) -> Vec<Token> {
        crate::templates::history(&self.model, self.tokens())
    }
}

async fn told(ask: &Ask) -> Told {
    let mut replies = Vec::new();
    let mut prompts = Vec::new();
    for stream in [false, true] {
        let mut body = ask.body.clone();
        body["stream"] = json!(stream);
        let fake = Arc::new(Fake {
            context: ask.context,
            model: ask.model.clone(),
            ..Fake::new(ask.says.clone())
        });
        let request = posted(ask.path, body.to_string());
        replies.push(crate::cluster::request(fake.clone(), Limits::default(), request).await);
        prompts.push(fake.prompts.lock().unwrap().pop().map(|(prompt, _)| prompt));
    }
    let (stream, unary) = (replies.pop().unwrap(), replies.pop().unwrap());
    let prompt = prompts.swap_remove(0);
    Told { unary, stream, prompt, model: ask.model.clone() }
}

/// Asks everything, in both forms. What is served must be one answer, what is refused one error.
async fn answers(asks: Vec<Ask>) -> Vec<Told> {
    let mut all = Vec::new();
    for ask in &asks {
        let told = told(ask).await;
        if told.unary.status == 200 {
            assert_one_answer(ask.path, &told.body(), &told.stream.text);
        } else if told.stream.status != 200 {
            assert_eq!(told.unary.status, told.stream.status, "{}", told.unary.text);
            assert_eq!(told.body(), told.stream.json(), "an early refusal is no stream");
        }
        all.push(told);
    }
    all
}

fn all_served(told: &[Told]) {
    for (i, one) in told.iter().enumerate() {
        assert_eq!(one.status(), 200, "request {i}: {}", one.unary.text);
    }
}

fn same_tokens(told: &[Told]) {
    all_served(told);
    for (i, one) in told.iter().enumerate() {
        assert_eq!(one.text(), told[0].text(), "request {i}");
        assert_eq!(one.tokens(), told[0].tokens(), "request {i}");
    }
}

/// A call as the tiny model writes it.
fn call(name: &str, arguments: &str) -> String {
    format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {arguments}}}</tool_call>")
}

/// The tool of the list, as Chat Completions has it.
fn weather() -> Value {
    json!({"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }}})
}

/// The same, as Messages has it.
fn weather_of_messages() -> Value {
    let function = &weather()["function"];
    json!({"name": function["name"], "input_schema": function["parameters"]})
}

/// The same, as Responses has it.
fn weather_of_responses() -> Value {
    let mut tool = weather()["function"].clone();
    tool["type"] = json!("function");
    tool
}

/// A section's rows: the id, what went wrong elsewhere, what is asked, what must hold.
macro_rules! rows {
    ($($row:ident: $failure:literal, $asks:expr, $holds:expr;)*) => {
        /// The ids of this section's rows.
        pub(super) const ROWS: &[&str] = &[$(stringify!($row)),*];
        $(
            #[doc = $failure]
            #[tokio::test]
            async fn $row() {
                let holds: fn(&[super::Told]) = $holds;
                holds(&super::answers($asks).await);
            }
        )*
    };
}
use rows;

/// The whole list.
const LIST: &str = "a1 a2 a3 a4 a5 a7 a8 a10 a12 a13 a15 a16 a17 a20 \
    b1 b2 b4 b5 b6 b9 b10 b11 b12 b14 b15 b18 b19 b20 b21 b23 b25 b26 b27 b29 \
    c1 c2 c4 c6 c7 c9 c10 c11 c13 d1 d2 d4 d5 d6";

/// Rows, or the parts of rows, that other tests hold: the row, the file from this crate, the test.
const ELSEWHERE: [(&str, &str, &str); 13] = [
    ("a17", "tests/http/recorded.rs", "recorded_sessions_are_served_and_share_their_prefix"),
    ("b9", "tests/http/streams.rs", "silence_is_filled_with_data"),
    ("b25", "tests/http/chat.rs", "calls_in_the_body"),
    ("c7", "tests/http/disconnect.rs", "closing_the_connection_cancels"),
    ("c11", "tests/http/streams.rs", "silence_is_filled_with_data"),
    ("c13", "../../tests/outside/clients.py", "conformance.py"),
    ("d1", "tests/http/disconnect.rs", "closing_the_connection_cancels"),
    ("d1", "../../tests/tests/suite/gone_clients.rs", "the_engine_stops_within_a_second"),
    ("d2", "tests/http/streams.rs", "silence_is_filled_with_data"),
    ("d4", "../../tests/tests/suite/deaths.rs", "in_the_middle_of_a_stream_the_client_is_told"),
    ("d6", "tests/http/streams.rs", "silence_is_filled_with_data"),
    (
        "d6",
        "../../tests/tests/suite/silence.rs",
        "silent_connections_are_closed_and_slow_answers_are_not",
    ),
    ("a3", "tests/http/histories.rs", "a_longer_history_begins_with_the_shorter"),
];

#[test]
fn every_row_of_the_list_is_tested() {
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    for section in [a::ROWS, b::ROWS, c::ROWS, d::ROWS] {
        covered.extend(section);
    }
    for (row, file, test) in ELSEWHERE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let defined = if file.ends_with(".rs") { format!("fn {test}(") } else { test.to_owned() };
        assert!(text.contains(&defined), "{row}: {file} has no {test}");
        covered.insert(row);
    }
    let list: BTreeSet<&str> = LIST.split_whitespace().collect();
    assert_eq!(covered, list);
}
