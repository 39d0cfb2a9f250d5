//! Writers of all dialects: whatever the pieces, the stream is well-formed and says what the whole
//! answer says.

use super::*;
use crate::error::Kind;
use crate::responses::record::Recalled;
use crate::seal::Seal;
use crate::server::speech::{Endpoint, Speech};
use crate::stream::Reason;
use crate::testing::read::{assert_one_answer, events};
use protocol::hash::Token;
use protocol::prompt::PromptSources;
use protocol::time::Span;
use serde_json::json;

/// Texts that look like the frame around them.
const TEXTS: [&str; 8] = [
    "a",
    "\n\n",
    "data: [DONE]\n\n",
    "event: error\ndata: {}\n\n",
    "\u{0}",
    "🦀",
    "\u{2028}\"\\",
    " ",
];
const NAMES: [&str; 5] = ["w", "n__w", "patch", "unknown", "odd \"name\"\n"];
const ARGUMENTS: [&str; 5] = [
    "{}",
    r#"{"city":"Oslo 🦀"}"#,
    r#"{"input":"*** a\n"}"#,
    r#"{"input":5}"#,
    r#"{"a":{"b":[1,null]}}"#,
];

const ENDPOINTS: [(Endpoint, &str); 4] = [
    (Endpoint::Chat, "/v1/chat/completions"),
    (Endpoint::Completions, "/v1/completions"),
    (Endpoint::Messages, "/v1/messages"),
    (Endpoint::Responses, "/v1/responses"),
];

/// One step of an answer's life.
enum Step {
    Beat,
    Piece(Piece),
}

/// Bytes, one after the other; 0 when there are no more.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % n
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Pieces as the contract has them: the arguments of a call follow it, and are an object.
fn steps(choices: &mut Choices<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut calls = 0;
    while choices.0.len() > 0 {
        match choices.below(5) {
            0 => steps.push(Step::Beat),
            1 | 2 => steps.push(Step::Piece(Piece::Text(choices.of(&TEXTS).into()))),
            3 => steps.push(Step::Piece(Piece::Reasoning(choices.of(&TEXTS).into()))),
            _ => {
                let (index, name) = (calls, choices.of(&NAMES).to_owned());
                calls += 1;
                steps.push(Step::Piece(Piece::CallStart { index, name }));
                let mut rest = choices.of(&ARGUMENTS);
                while !rest.is_empty() {
                    let wanted = 1 + choices.below(rest.len());
                    let cut = (wanted..rest.len()).find(|at| rest.is_char_boundary(*at));
                    let (fragment, after) = rest.split_at(cut.unwrap_or(rest.len()));
                    let fragment = fragment.to_owned();
                    steps.push(Step::Piece(Piece::CallArguments { index, fragment }));
                    rest = after;
                    if choices.below(4) == 3 {
                        steps.push(Step::Beat);
                    }
                }
            }
        }
    }
    steps
}

/// Completions have no calls and no reasoning: there is no template.
fn fits(endpoint: Endpoint, step: &Step) -> bool {
    matches!((endpoint, step), (Endpoint::Completions, Step::Beat | Step::Piece(Piece::Text(_))))
        || endpoint != Endpoint::Completions
}

fn speech(endpoint: Endpoint, usage: bool) -> Speech {
    let tool = json!({"type": "function", "name": "w"});
    let body = json!({
        "messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "stream": true,
        "stream_options": {"include_usage": usage},
    });
    let responses = json!({
        "input": "hi", "include": ["reasoning.encrypted_content"],
        "tools": [
            tool, {"type": "namespace", "name": "n", "tools": [tool]},
            {"type": "custom", "name": "patch"},
        ],
    });
    let body = match endpoint {
        Endpoint::Responses => responses,
        _ => body,
    };
    let read = endpoint.read(
        body.to_string().as_bytes(),
        || Seal::of_reasoning(&[1; 32]),
        Recalled::default(),
    );
    let (ask, style) = read.unwrap();
    Speech::new(style, &ask, "0a1b".into(), "tiny \"quoted\"".into(), 7, 9)
}

#[test]
fn any_pieces_make_a_stream_that_says_what_the_whole_answer_says() {
    bolero::check!().with_iterations(600).with_max_len(64).for_each(|bytes: &[u8]| {
        let mut choices = Choices(bytes.iter());
        let reason = match choices.below(5) {
            0 => Reason::Stop,
            1 => Reason::StopString("x\n".into()),
            2 => Reason::ToolCalls,
            3 => Reason::Length,
            _ => Reason::ContextFull,
        };
        let nvext = (choices.below(2) == 1).then(|| json!({"timing": {"total_ms": 1.5}}));
        let (with_usage, fails) = (choices.below(2) == 1, choices.below(4) == 3);
        let standing = match choices.below(3) {
            0 => Standing::Safe,
            1 => Standing::Degraded,
            _ => Standing::Not("the others are away".into()),
        };
        let sources = PromptSources { gpu: 4, ..PromptSources::default() };
        let usage = Usage { prompt: 9, sources, output: 3, reasoning: 1 };
        let ending = Ending { reason, usage, tokens: vec![Token(1)], took: Span::millis(1500) };
        let steps = steps(&mut choices);
        for (endpoint, path) in ENDPOINTS {
            let mut writer = speech(endpoint, with_usage).writer();
            let (mut out, mut pieces) = (String::new(), Vec::new());
            writer.open(&mut out);
            writer.heartbeat(&mut out);
            writer.began(&usage, &mut out);
            for step in steps.iter().filter(|step| fits(endpoint, step)) {
                match step {
                    Step::Beat => writer.heartbeat(&mut out),
                    Step::Piece(piece) => {
                        writer.piece(piece, &mut out);
                        pieces.push(piece.clone());
                    }
                }
            }
            if fails {
                writer.failed(&ApiError::new(Kind::Failed, "the engine died"), &usage, &mut out);
                assert_failed(endpoint, &out);
            } else {
                let speech = speech(endpoint, with_usage);
                let mut whole = speech.body(&pieces, &ending, nvext.clone());
                let record = writer.settle(&ending, &mut out);
                assert_eq!(record, speech.record(&whole), "one answer is kept");
                if record.is_some() {
                    writer.heartbeat(&mut out);
                    writer.kept(standing.clone());
                    speech.kept(&mut whole, &standing);
                }
                writer.ended(&ending, nvext.clone(), &mut out);
                assert_one_answer(path, &whole, &out);
            }
        }
    });
}

/// Exactly one event tells the failure, in the dialect's words, and nothing but `[DONE]` follows.
fn assert_failed(endpoint: Endpoint, out: &str) {
    let mut events = events(out);
    if matches!(endpoint, Endpoint::Chat | Endpoint::Completions) {
        assert_eq!(events.pop().unwrap().1, "[DONE]");
    }
    let told = |(name, data): &(String, String)| {
        let data: Value = serde_json::from_str(data).unwrap();
        let error =
            if name == "response.failed" { &data["response"]["error"] } else { &data["error"] };
        if name == "response.failed" {
            assert_eq!(data["response"]["usage"]["output_tokens"], 3, "what had come: {data}");
        }
        error["message"] == "the engine died"
    };
    assert_eq!(events.iter().filter(|event| told(event)).count(), 1, "{out}");
    assert!(told(events.last().unwrap()), "{out}");
}
