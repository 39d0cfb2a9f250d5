//! A placed request and its stream.

use crate::cases::{Case, numbered, value};
use crate::values::{ann, bob, claim, load, prefix, target};
use protocol::block::BlockClass;
use protocol::constraint::{CallShape, Callable, Calls, Constraint, Form, Lead, Schema, TextForm};
use protocol::hash::{ClientSalt, GRANULE, Token};
use protocol::id::{RequestId, SessionId, TenantId};
use protocol::plan::{Estimate, Placed, Plan, Source};
use protocol::prompt::{
    Finish, FinishReason, Hints, Limits, Prompt, PromptSources, RangeClaim, Refusal, Sampling,
    Started, StreamItem,
};
use protocol::time::Span;
use protocol::wire::serve::{Beginning, Line, ServeAnswer, ServeAsk, ServeRequest};

fn tokens(from: u32, n: u32) -> Vec<Token> {
    (from..from + n).map(Token).collect()
}

fn schema() -> Schema {
    Schema { text: r#"{"type":"object"}"#.into(), exact: true }
}

fn calls() -> Calls {
    let shape = CallShape {
        open: "<tool_call>\n{\"name\": ".into(),
        arguments: ", \"arguments\": ".into(),
        close: "}\n</tool_call>".into(),
        between: "\n".into(),
    };
    let tools = vec![
        Callable { name: "search".into(), parameters: Some(schema()) },
        Callable { name: "stop".into(), parameters: None },
    ];
    Calls { shape, begun: "<tool_call>\n{\"name\":".into(), tools, parallel: true }
}

fn constraint() -> Constraint {
    let lead = Lead::Maybe { opens: "<think>".into(), closes: "</think>".into() };
    Constraint { lead, form: Form::TextOrCalls(TextForm::JsonSchema(schema()), calls()) }
}

/// Everything that can be said in a request is said.
fn full_prompt() -> Prompt {
    let claim = |start, end, class| RangeClaim { start, end, claim: claim(class) };
    Prompt {
        id: RequestId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        model: "SmolLM2-135M-Instruct".into(),
        tenant: TenantId::local(),
        session: SessionId::new("agent-7/lead"),
        tokens: tokens(240, 40).into(),
        prefix: vec![prefix(1), prefix(2)].into(),
        salt: Some(ClientSalt::of("mine")),
        sampling: Sampling { temperature: 0.7, top_p: 0.9, top_k: 40, min_p: 0.05, seed: 42 },
        limits: Limits { max_tokens: 256, stop_tokens: tokens(2, 1) },
        constraint: Some(constraint()),
        hints: Hints {
            priority: -5,
            strict_priority: 1,
            osl: Some(200),
            speculative_prefill: true,
            claims: vec![
                claim(0, 16, BlockClass::System),
                claim(16, 32, BlockClass::Tools),
                claim(32, 40, BlockClass::Context),
                claim(32, 40, BlockClass::Reasoning),
                claim(32, 40, BlockClass::Output),
            ],
            parent: SessionId::new("agent-7"),
            session_final: true,
            tool_latency: Some(Span::millis(2500)),
        },
    }
}

fn plain_prompt() -> Prompt {
    Prompt {
        id: RequestId(7),
        session: None,
        tokens: tokens(1, 3).into(),
        prefix: Vec::new().into(),
        salt: None,
        sampling: Sampling::GREEDY,
        limits: Limits { max_tokens: 1, stop_tokens: Vec::new() },
        constraint: None,
        hints: Hints::default(),
        ..full_prompt()
    }
}

fn placed() -> Placed {
    let source = Source { node: ann().node(), start: 0, end: 32, deadline: Span::millis(400) };
    let estimate = Estimate {
        queue_ms: 1.0,
        onboard_ms: 2.0,
        prefill_ms: 3.0,
        decode_ms: 0.5,
        gpu_ms: 0.25,
        cost_ms: 6.75,
        local_tokens: 0,
        peer_tokens: 32,
        computed_tokens: 8,
    };
    let plan = Plan { prefill: target(), decode: target(), sources: vec![source], estimate };
    Placed { plan, outcome: "kv: lowest cost of 3".into() }
}

fn prompt_sources() -> PromptSources {
    PromptSources { gpu: 16, dram: 16, nvme: 0, peer: 4, computed: 4 }
}

fn finish(reason: FinishReason) -> Finish {
    Finish { reason, prompt: prompt_sources(), output_tokens: 300 }
}

pub(crate) fn request() -> ServeRequest {
    ServeRequest { prompt: full_prompt(), placed: placed(), bounced: true }
}

/// Without the first granule of its prompt.
pub(crate) fn short() -> ServeAsk {
    let mut request = request();
    let last = request.prompt.prefix.first().copied().unwrap();
    request.prompt.prefix =
        request.prompt.prefix.iter().skip(1).copied().collect::<Vec<_>>().into();
    request.prompt.tokens =
        request.prompt.tokens.iter().skip(GRANULE).copied().collect::<Vec<_>>().into();
    let beginning = Beginning { line: Line(300), granules: 1, last };
    ServeAsk { beginning: Some(beginning), keep_as: None, request }
}

pub(crate) fn cases() -> Vec<Case> {
    let plan = Plan { sources: Vec::new(), ..placed().plan };
    let plain = Placed { plan, outcome: String::new() };
    let refused = Refusal::Busy { retry_after: Span::millis(1500) };
    let item = StreamItem::Tokens(tokens(100, 3));
    let mut cases = vec![
        value("serve-request", request()),
        value(
            "serve-request-plain",
            ServeRequest { prompt: plain_prompt(), placed: plain, bounced: false },
        ),
        value(
            "serve-ask",
            ServeAsk { beginning: None, keep_as: Some(Line(7)), request: request() },
        ),
        value("serve-ask-short", short()),
    ];
    cases.extend(numbered(
        "serve-answer",
        vec![
            ("bounced", ServeAnswer::Bounced(load())),
            ("refused", ServeAnswer::Refused(refused.clone())),
            ("item", ServeAnswer::Item(item.clone())),
            ("unknown", ServeAnswer::Unknown),
        ],
    ));
    let started =
        Started { serving_node: bob(), prompt: prompt_sources(), queued: Span::millis(12) };
    cases.extend(numbered(
        "stream-item",
        vec![
            ("started", StreamItem::Started(started)),
            ("tokens", item),
            ("finished", StreamItem::Finished(finish(FinishReason::Length))),
            ("failed", StreamItem::Failed(Refusal::Gone)),
        ],
    ));
    cases.extend(numbered(
        "finish-reason",
        vec![
            ("stop", FinishReason::Stop(Token(2))),
            ("length", FinishReason::Length),
            ("context-full", FinishReason::ContextFull),
            ("cancelled", FinishReason::Cancelled),
        ],
    ));
    cases.extend(numbered(
        "refusal",
        vec![
            ("busy", refused),
            ("no-target", Refusal::NoTarget { model: "m".into() }),
            ("too-long", Refusal::TooLong { tokens: 9000, limit: 8192 }),
            ("gone", Refusal::Gone),
            ("failed", Refusal::Failed("the engine stopped".into())),
        ],
    ));
    cases.extend(numbered(
        "constraint-lead",
        vec![
            ("none", Lead::None),
            ("through", Lead::Through("</think>".into())),
            ("maybe", constraint().lead),
        ],
    ));
    let json = TextForm::JsonSchema(schema());
    cases.extend(numbered(
        "constraint-form",
        vec![
            ("text", Form::Text(json.clone())),
            ("calls", Form::Calls(calls())),
            ("text-or-calls", Form::TextOrCalls(json.clone(), calls())),
        ],
    ));
    cases.extend(numbered(
        "constraint-text",
        vec![("json-object", TextForm::JsonObject), ("json-schema", json)],
    ));
    cases.extend(numbered(
        "block-class",
        vec![
            ("system", BlockClass::System),
            ("tools", BlockClass::Tools),
            ("context", BlockClass::Context),
            ("reasoning", BlockClass::Reasoning),
            ("output", BlockClass::Output),
        ],
    ));
    cases
}
