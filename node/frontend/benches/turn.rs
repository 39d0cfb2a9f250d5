//! The next turn of a long session: what the entry node does with it, stage by stage.
//!
//! `cargo bench -p frontend` prints microseconds (lowest and median of the turns). `-- TURNS BYTES`
//! sets how many turns are measured, and about how long the history is.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures real time
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // not a product

use axum::body::Body;
use axum::http::Request;
use frontend::{
    Cluster, Format, Kept, Keys, Limits, RecordName, Served, ServedModel, Unkept, Want, router,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use model::{Model, RenderRequest};
use protocol::hash::{ClientSalt, RoutingKey, Token};
use protocol::id::{EngineId, Incarnation, NodeId, Target, TenantId};
use protocol::plan::{Estimate, Placed, Plan};
use protocol::prompt::{Finish, FinishReason, Prompt, PromptSources, Refusal, StreamItem};
use protocol::time::Span;
use protocol::wire;
use protocol::wire::serve::ServeRequest;
use serde_json::{Value, json};
use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::mpsc;
use tower::ServiceExt;

/// Keeps the last prompt and ends every answer at once.
struct Sink {
    model: Arc<Model>,
    last: Mutex<Option<Prompt>>,
}

fn placed() -> Placed {
    let incarnation = Incarnation { counter: 1, nonce: 1 };
    let target = Target { node: NodeId([7; 32]), incarnation, engine: EngineId(0), dp_rank: 0 };
    let plan =
        Plan { prefill: target, decode: target, sources: vec![], estimate: Estimate::default() };
    Placed { plan, outcome: "kv".into() }
}

impl Cluster for Sink {
    fn awaits(&self, _: Option<&str>) -> bool {
        false
    }

    fn models(&self) -> Arc<[ServedModel]> {
        Arc::new([ServedModel {
            name: "tiny".into(),
            aliases: Vec::new(),
            model: self.model.processor().clone(),
            context: 1 << 20,
            created: 0,
            format: Format::Hermes,
        }])
    }

    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    fn routing_key(
        &self,
        _: &ServedModel,
        _: &TenantId,
        _: Option<&ClientSalt>,
    ) -> Option<RoutingKey> {
        Some(RoutingKey::derive(&self.model.routing(), &[1; 32]))
    }

    fn serve(&self, prompt: Prompt, _: Want) -> BoxFuture<'static, Result<Served, Refusal>> {
        *self.last.lock().unwrap() = Some(prompt);
        let (sender, items) = mpsc::channel(2);
        let finish = Finish {
            reason: FinishReason::Stop(Token(2)),
            prompt: PromptSources::default(),
            output_tokens: 1,
        };
        sender.try_send(StreamItem::Finished(finish)).unwrap();
        let served =
            Served { items, serving_node: String::new(), outcome: String::new(), placed: placed() };
        async { Ok(served) }.boxed()
    }

    fn sealing_secret(&self, _: &TenantId) -> [u8; 32] {
        [0; 32]
    }

    fn keep(&self, _: RecordName, _: Vec<u8>, _: Span) -> BoxFuture<'static, Result<Kept, Unkept>> {
        async { Ok(Kept::Safe) }.boxed()
    }

    fn recall(&self, _: RecordName) -> BoxFuture<'static, Result<Option<Vec<u8>>, Unkept>> {
        async { Ok(None) }.boxed()
    }

    fn forget(&self, _: RecordName) -> BoxFuture<'static, Result<bool, Unkept>> {
        async { Ok(false) }.boxed()
    }

    fn entry_node(&self) -> String {
        String::new()
    }

    fn now_unix(&self) -> u64 {
        0
    }

    fn fresh_id(&self) -> u128 {
        1
    }
}

/// An agent's session of words that are tokens.
struct Session {
    words: Vec<String>,
    state: u64,
    messages: Vec<Value>,
}

impl Session {
    fn text(&mut self, words: u32) -> String {
        let mut text = String::new();
        for n in 0..words {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = &self.words[(self.state >> 33) as usize % self.words.len()];
            text.push_str(word);
            if n % 12 == 11 {
                text.push_str(".\n");
            }
        }
        text
    }

    fn turn(&mut self) {
        let arguments = json!({ "path": self.text(3), "lines": [1, self.messages.len()] });
        let id = format!("call_{}", self.messages.len());
        let (result, answer, question) = (self.text(120), self.text(120), self.text(120));
        self.messages.extend([
            json!({ "role": "assistant", "content": "", "tool_calls": [
                { "id": id, "type": "function",
                  "function": { "name": "read_file", "arguments": arguments.to_string() } },
            ]}),
            json!({ "role": "tool", "tool_call_id": id, "content": result }),
            json!({ "role": "assistant", "content": answer }),
            json!({ "role": "user", "content": question }),
        ]);
    }

    fn body(&self) -> String {
        let tool = |name: &str| {
            json!({ "type": "function", "function": {
                "name": name, "description": "Reads, writes or looks for lines of a file.",
                "parameters": { "type": "object", "properties": {
                    "path": { "type": "string" },
                    "lines": { "type": "array", "items": { "type": "integer" } },
                }},
            }})
        };
        let tools: Vec<Value> = ["read_file", "write_file", "find"].map(tool).into();
        json!({ "model": "tiny", "messages": self.messages, "tools": tools }).to_string()
    }
}

/// Microseconds of `work`, lowest and median.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let out = black_box(work());
        self.0.push(began.elapsed().as_secs_f64() * 1e6);
        out
    }

    fn print(&mut self, name: &str) {
        self.0.sort_by(f64::total_cmp);
        let low = self.0.first().copied().unwrap_or_default();
        let middle = self.0.get(self.0.len() / 2).copied().unwrap_or_default();
        println!("{name:<34} {low:>8.0} {middle:>8.0} µs");
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let (turns, bytes) = (arguments.next().unwrap_or(30), arguments.next().unwrap_or(450_000));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
    let model = Arc::new(Model::open(&path).unwrap());
    let words = (0..model.tokenizer().vocab_size() as u32)
        .filter_map(|id| model.tokenizer().spelling(Token(id)))
        .filter_map(|text| Some(format!(" {}", text.strip_prefix('Ġ')?)))
        .filter(|word| word.len() > 3 && word.bytes().skip(1).all(|b| b.is_ascii_alphabetic()))
        .collect();
    let mut session = Session { words, state: 1, messages: Vec::new() };
    let head = [session.text(960), session.text(120)];
    session.messages.push(json!({ "role": "system", "content": head[0] }));
    session.messages.push(json!({ "role": "user", "content": head[1] }));
    while session.body().len() < bytes {
        session.turn();
    }
    let sink = Arc::new(Sink { model: model.clone(), last: Mutex::new(None) });
    let api = router(sink.clone(), Arc::new(Keys::open()), Limits::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |body: String| {
        let request = Request::post("/v1/chat/completions")
            .header("x-dynamo-session-id", "s")
            .body(Body::from(body))
            .unwrap();
        let response = runtime.block_on(api.clone().oneshot(request)).unwrap();
        assert_eq!(response.status(), 200);
    };
    let names = ["whole request, without the wire", "parse alone, untyped", "template alone"];
    let mut times: Vec<Times> = (0..5).map(|_| Times::default()).collect();
    ask(session.body());
    let (mut sent, mut before) = (0, 0);
    for _ in 0..turns {
        before = sink.last.lock().unwrap().as_ref().map_or(0, |prompt| prompt.tokens.len());
        session.turn();
        let body = session.body();
        times[0].time(|| ask(body.clone()));
        let parsed: Value = times[1].time(|| serde_json::from_str(&body).unwrap());
        let request = RenderRequest {
            messages: parsed["messages"].as_array().unwrap(),
            tools: parsed["tools"].as_array().unwrap(),
            add_generation_prompt: true,
        };
        times[2].time(|| model.template().render(&request).unwrap());
        let prompt = sink.last.lock().unwrap().clone().unwrap();
        let request = ServeRequest { prompt, placed: placed(), bounced: false };
        let encoded = times[3].time(|| wire::encode(&request).unwrap());
        let decoded: ServeRequest = times[4].time(|| wire::decode(&encoded).unwrap());
        assert!(decoded == request);
        sent = encoded.len();
    }
    let tokens = sink.last.lock().unwrap().as_ref().map_or(0, |prompt| prompt.tokens.len());
    let body = session.body().len();
    println!("{body} bytes, {tokens} tokens, {} of them new, {sent} on the wire", tokens - before);
    println!("{:<34} {:>8} {:>8}", "", "lowest", "median");
    for (name, times) in names.iter().chain(&["wire: encode", "wire: decode"]).zip(&mut times) {
        times.print(name);
    }
}
