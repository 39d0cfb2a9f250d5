use super::*;
use crate::testing::tools;
use proptest::prelude::*;

mod formats;
mod written;

const W: &str = r#"<tool_call>{"name": "w", "arguments": {"city": "Oslo"}}</tool_call>"#;

/// Text, reasoning and calls, joined.
#[derive(Debug, PartialEq, Default, Clone)]
struct Parsed {
    text: String,
    reasoning: String,
    calls: Vec<(String, String)>,
}

fn parse_as(markup: &mut Markup, pieces: &[&str]) -> Parsed {
    let mut out = Vec::new();
    for piece in pieces {
        markup.push(piece, &mut out);
    }
    markup.finish(&mut out);
    let mut parsed = Parsed::default();
    for piece in out {
        match piece {
            Piece::Text(text) => parsed.text.push_str(&text),
            Piece::Reasoning(text) => parsed.reasoning.push_str(&text),
            Piece::CallStart { index, name } => {
                assert_eq!(index as usize, parsed.calls.len(), "indexes count up");
                parsed.calls.push((name, String::new()));
            }
            Piece::CallArguments { index, fragment } => {
                parsed.calls[index as usize].1.push_str(&fragment);
            }
        }
    }
    parsed
}

fn parse(text: &str) -> Parsed {
    parse_as(&mut Markup::new(Format::Hermes, tools(), true, Opening::Free), &[text])
}

fn call() -> (String, String) {
    ("w".into(), r#"{"city":"Oslo"}"#.into())
}

#[test]
fn calls_reasoning_and_text_come_apart() {
    let parsed = parse(&format!("<think>\nhm\n</think>\n\nLet me see.\n{W}\n{W}\nDone"));
    assert_eq!((parsed.reasoning.as_str(), parsed.text.as_str()), ("hm", "Let me see.Done"));
    assert_eq!(parsed.calls, vec![call(), call()]);
}

#[test]
fn a_call_inside_reasoning_is_still_a_call() {
    let parsed = parse(&format!("<think>I must ask.\n{W}"));
    assert_eq!((parsed.reasoning.as_str(), parsed.calls.len()), ("I must ask.", 1));
}

#[test]
fn broken_and_cut_calls_are_text() {
    let cases = [
        ("Hi\n<tool_call>{\"name\": \"w\", \"argu", "Hi\n{\"name\": \"w\", \"argu"),
        ("<tool_call>not json</tool_call> and on", "not json and on"),
        ("<tool_call>", "<tool_call>"),
        ("a </tool_call>b", "a b"),
        ("a < b <tool", "a < b "),
        ("a <", "a <"),
        ("<tool_call>{\"a\": \"b</tool_call>c", "{\"a\": \"bc"),
    ];
    for (text, expected) in cases {
        let parsed = parse(text);
        assert_eq!((parsed.text.as_str(), parsed.calls.len()), (expected, 0), "{text}");
    }
}

#[test]
fn a_complete_call_needs_no_closing_tag() {
    let cut = W.strip_suffix("_call>").unwrap();
    assert_eq!(parse(cut).calls, vec![call()]);
    let next = format!("<tool_call>{{\"name\":\"a\"}}{W}");
    assert_eq!(parse(&next).calls.len(), 2, "an opening tag closes the call before it");
}

#[test]
fn without_tools_tags_are_text() {
    let mut markup = Markup::new(Format::Hermes, Tools::default(), true, Opening::Free);
    let parsed = parse_as(&mut markup, &["see ", W]);
    assert_eq!((parsed.text, parsed.calls.len()), (format!("see {W}"), 0));
}

#[test]
fn one_call_is_enough_when_calls_are_not_parallel() {
    let mut markup = Markup::new(Format::Hermes, tools(), false, Opening::Free);
    let parsed = parse_as(&mut markup, &[W, W, "text"]);
    assert!(markup.is_done());
    assert_eq!((parsed.calls.len(), parsed.text.as_str()), (1, ""));
}

#[test]
fn the_prompt_may_have_opened_a_block() {
    let parsed = parse_as(
        &mut Markup::new(Format::Hermes, Tools::default(), true, Opening::Thinking),
        &["\nhm</think>\nHi"],
    );
    assert_eq!((parsed.reasoning.as_str(), parsed.text.as_str()), ("hm", "Hi"));
    let opening = Opening::Call(r#"{"name": "w", "arguments": "#.into());
    let parsed = parse_as(
        &mut Markup::new(Format::Hermes, tools(), true, opening),
        &[r#"{"city": "Oslo"}}"#],
    );
    assert_eq!(parsed.calls, vec![call()]);
}

#[test]
fn long_arguments_come_in_several_fragments() {
    let mut markup = Markup::new(Format::Hermes, tools(), true, Opening::Free);
    let mut out = Vec::new();
    let long = "世界".repeat(100);
    let text = format!(r#"<tool_call>{{"name":"w","arguments":{{"t":"{long}"}}}}</tool_call>"#);
    markup.push(&text, &mut out);
    assert!(out.len() > 4);
}

/// Texts made of what matters, so that tags meet in every way.
fn texts() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        W,
        r#"{"name":"w"}"#,
        "{",
        "\"",
        "\n",
        " ",
        "a",
        "é",
        "<",
        "<tool",
        "\\",
        "</",
    ]);
    prop::collection::vec(parts, 0..12).prop_map(|parts| parts.concat())
}

#[test]
fn an_end_within_what_is_no_string_is_an_end() {
    for (text, shown) in [
        (r#"<tool_call>"</tool_call>"<tool_call>"#, r#"""<tool_call>"#),
        (r#"<tool_call>"</tool_call>" </tool_call>"#, r#""" "#),
    ] {
        let parsed = parse(text);
        assert!(!parsed.text.contains("</tool_call>"), "{text}: {}", parsed.text);
        assert_eq!(parsed.text, shown);
    }
}

proptest! {
    #[test]
    fn cuts_do_not_matter(text in texts(), tools: bool, thinking: bool) {
        let opening = || if thinking { Opening::Thinking } else { Opening::Free };
        let given = || if tools { crate::testing::tools() } else { Tools::default() };
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        let whole = parse_as(&mut Markup::new(Format::Hermes, given(), true, opening()), &[&text]);
        let cut = parse_as(&mut Markup::new(Format::Hermes, given(), true, opening()), &chars);
        prop_assert_eq!(&cut, &whole);
        prop_assert!(!tools || !whole.text.contains("</tool_call>"));
    }

    #[test]
    fn letters_are_never_lost(text in texts()) {
        let letters = |s: &str| s.matches('a').count() + s.matches('é').count();
        let parsed = parse(&text);
        let arguments: String = parsed.calls.iter().map(|c| c.1.as_str()).collect();
        let shown = letters(&parsed.text) + letters(&parsed.reasoning) + letters(&arguments);
        let tags = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
        let bare = tags.iter().fold(text.clone(), |s, tag| s.replace(tag, ""));
        // The call's own keys hold letters that are markup.
        prop_assert!(shown + 4 * text.matches("name").count() >= letters(&bare));
    }
}
