use super::*;
use crate::testing::{tiny, tokens};
use proptest::prelude::*;
use protocol::id::NodeId;
use protocol::prompt::Finish;
use protocol::time::Span;

fn shape() -> Shape {
    Shape {
        prompt_tokens: 10,
        format: Format::Hermes,
        tools: crate::testing::tools(),
        parallel_calls: true,
        opening: Opening::Free,
        stop: Vec::new(),
        limit_is_context: false,
    }
}

fn finished(reason: FinishReason, output_tokens: u32) -> StreamItem {
    let prompt = PromptSources { computed: 4, peer: 6, ..PromptSources::default() };
    StreamItem::Finished(Finish { reason, prompt, output_tokens })
}

/// All text, reasoning and calls, in order, neighbours of one kind joined.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (&piece, out.last_mut()) {
            (Piece::Text(more), Some(Piece::Text(text))) => text.push_str(more),
            (Piece::Reasoning(more), Some(Piece::Reasoning(text))) => text.push_str(more),
            (
                Piece::CallArguments { fragment: more, .. },
                Some(Piece::CallArguments { fragment, .. }),
            ) => fragment.push_str(more),
            _ => out.push(piece),
        }
    }
    out
}

fn run(shape: Shape, batches: Vec<Vec<Token>>, reason: FinishReason) -> (Vec<Piece>, Step) {
    let mut translator = Translator::new(tiny().tokenizer(), shape);
    let mut pieces = Vec::new();
    let count = batches.iter().map(|batch| batch.len() as u32).sum();
    for batch in batches {
        match translator.push(StreamItem::Tokens(batch), &mut pieces) {
            Step::More => {}
            step => return (joined(pieces), step),
        }
    }
    let step = translator.push(finished(reason, count), &mut pieces);
    (joined(pieces), step)
}

fn ending(step: Step) -> Ending {
    match step {
        Step::Ended(ending) => ending,
        step => panic!("{step:?}"),
    }
}

const STOP: FinishReason = FinishReason::Stop(Token(2));
const CALL: &str = r#"<tool_call>{"name": "w", "arguments": {"city": "Oslo"}}</tool_call>"#;

#[test]
fn usage_is_counted() {
    let mut translator = Translator::new(tiny().tokenizer(), shape());
    let prompt = PromptSources { gpu: 3, computed: 7, ..PromptSources::default() };
    let started = Started { serving_node: NodeId([0; 32]), prompt, queued: Span::ZERO };
    let mut pieces = Vec::new();
    translator.push(StreamItem::Started(started), &mut pieces);
    assert_eq!((translator.usage().prompt, translator.usage().cached()), (10, 3));
    let answer = tokens("<think>hm hm</think>yes");
    let count = answer.len() as u32;
    translator.push(StreamItem::Tokens(answer.clone()), &mut pieces);
    let end = ending(translator.push(finished(STOP, count + 1), &mut pieces));
    assert_eq!(end.usage.output, count + 1, "the stop token counts");
    assert_eq!(end.usage.cached(), 6, "the end tells the final sources");
    assert!(end.usage.reasoning > 0 && end.usage.reasoning < count);
    assert_eq!(end.tokens, answer);
}

#[test]
fn reasons() {
    let cases = [
        ("hi", STOP, Reason::Stop),
        (CALL, STOP, Reason::ToolCalls),
        ("hi", FinishReason::Length, Reason::Length),
        (CALL, FinishReason::Length, Reason::Length),
        ("<tool_call>{\"na", FinishReason::Length, Reason::Length),
        ("hi", FinishReason::ContextFull, Reason::ContextFull),
    ];
    for (text, reason, expected) in cases {
        let (_, step) = run(shape(), vec![tokens(text)], reason);
        assert_eq!(ending(step).reason, expected, "{text} {reason:?}");
    }
    let full = Shape { limit_is_context: true, ..shape() };
    let (_, step) = run(full, vec![tokens("hi")], FinishReason::Length);
    assert_eq!(ending(step).reason, Reason::ContextFull);
    let (_, step) = run(shape(), vec![], FinishReason::Cancelled);
    assert!(matches!(step, Step::Failed(_)));
}

#[test]
fn a_stop_string_ends_the_answer_before_the_engine_does() {
    let shape = Shape { stop: vec!["beta gamma".into()], ..shape() };
    let answer = tokens("say alpha beta gamma delta");
    let (pieces, step) = run(shape, vec![answer.clone()], STOP);
    let end = ending(step);
    assert_eq!(pieces, vec![Piece::Text("say alpha ".into())]);
    assert_eq!(end.reason, Reason::StopString("beta gamma".into()));
    assert!((end.usage.output as usize) < answer.len(), "later tokens are not counted");
}

#[test]
fn one_call_ends_the_answer_when_calls_are_not_parallel() {
    let shape = Shape { parallel_calls: false, ..shape() };
    let (pieces, step) = run(shape, vec![tokens(&format!("{CALL}{CALL}"))], STOP);
    assert_eq!(ending(step).reason, Reason::ToolCalls);
    assert_eq!(pieces.len(), 2, "{pieces:?}");
}

#[test]
fn a_character_cut_by_the_end_is_left_out() {
    let crab = tokens("🦀");
    assert!(crab.len() > 1, "the test needs a character of several tokens");
    let mut answer = tokens("a");
    answer.extend(&crab[..crab.len() - 1]);
    let (pieces, _) = run(shape(), vec![answer], FinishReason::Length);
    assert_eq!(pieces, vec![Piece::Text("a".into())]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn batches_do_not_matter(
        parts in prop::collection::vec(prop::sample::select(vec![
            "hello ", "世界🦀", "<think>", "</think>", CALL, "stop", " me", "\n", "<tool_call>", "{",
        ]), 0..8),
        cuts in prop::collection::vec(1usize..6, 0..40),
        thinking: bool,
    ) {
        let opening = if thinking { Opening::Thinking } else { Opening::Free };
        let shape = Shape { stop: vec!["stop me".into()], opening, ..shape() };
        let all = tokens(&parts.concat());
        let single: Vec<Vec<Token>> = all.iter().map(|token| vec![*token]).collect();
        let mut batches = Vec::new();
        let mut rest = all.as_slice();
        for cut in cuts {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            batches.push(head.to_vec());
            rest = tail;
        }
        batches.push(rest.to_vec());
        let whole = run(shape.clone(), vec![all], STOP);
        prop_assert_eq!(&run(shape.clone(), single, STOP), &whole);
        prop_assert_eq!(&run(shape, batches, STOP), &whole);
        for piece in &whole.0 {
            if let Piece::Text(text) = piece {
                let broken = text.contains('\u{fffd}') || text.contains("stop me");
                prop_assert!(!broken);
            }
        }
    }
}
