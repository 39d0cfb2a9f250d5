//! What holds for every format: answers come back as they were meant, however they are cut, and
//! nonsense loses no text.

use super::written::{Answer, Meant, written};
use super::*;
use serde_json::{Map, Value, json};

fn formats() -> impl Strategy<Value = Format> {
    prop::sample::select(Format::NAMED.map(|(_, format)| format).to_vec())
}

/// Words that look like marks without being any, and what else is odd.
const ODD: [&str; 24] = [
    "Oslo", "a b", "007", "5", "true", "é", "🦀", "<", "</", "<|", "[", "]", "{", "}", "<tool",
    "<thin", "[TOOL", "<|chan", "<｜tool", "<para", "'", "\"", "to=x", "x > y",
];

fn words(more: &'static [&'static str]) -> impl Strategy<Value = String> {
    let all: Vec<&str> = ODD.iter().chain(more).copied().collect();
    let words = prop::collection::vec(prop::sample::select(all), 0..6);
    // A cut mark at the very end is no text.
    words.prop_map(|words| words.join(" ") + if words.is_empty() { "" } else { "." })
}

/// In values even the marks themselves may stand.
const MARKS: [&str; 9] = [
    "</tool_call>",
    "<tool_call>",
    "</function>",
    "</parameter>.",
    "<|tool_call_end|>",
    "<|call|>",
    "\n",
    "\\",
    "<｜tool▁call▁end｜>",
];

fn calls() -> impl Strategy<Value = Vec<Meant>> {
    let any = prop_oneof![
        Just(json!(5)),
        Just(json!(-2.5)),
        Just(json!(true)),
        Just(Value::Null),
        Just(json!([1, "a", null])),
        Just(json!("text")),
    ];
    let w = (words(&MARKS), prop::option::of(proptest::num::i32::ANY), prop::option::of(any))
        .prop_map(|(city, n, any)| {
            let mut arguments = Map::new();
            arguments.insert("city".into(), city.into());
            n.map(|n| arguments.insert("n".into(), n.into()));
            any.map(|any| arguments.insert("any".into(), any));
            ("w", arguments)
        });
    prop::collection::vec(prop_oneof![w, Just(("now", Map::new()))], 0..4)
}

fn answers() -> impl Strategy<Value = Answer> {
    let answer = (words(&[]), words(&[]), calls());
    answer.prop_map(|(reasoning, text, calls)| Answer { reasoning, text, calls })
}

/// `text` in pieces of these many characters.
fn cut<'a>(text: &'a str, lengths: &[usize]) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut lengths = lengths.iter().cycle();
    while !rest.is_empty() {
        let length = lengths.next().copied().unwrap_or(1).max(1);
        let at = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
        let (head, tail) = rest.split_at(at);
        pieces.push(head);
        rest = tail;
    }
    pieces
}

fn fresh(format: Format) -> Markup {
    Markup::new(format, tools(), true, Opening::Free)
}

/// Marks and what stands between them, for every format.
const PIECES: [&str; 66] = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=w>",
    "<function=",
    "</function>",
    "<parameter=city>",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<invoke name=\"w\">",
    "<invoke name=\"",
    "<parameter name=\"city\">",
    "</invoke>",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "assistant",
    "analysis",
    "commentary",
    " to=functions.w",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<|tool_call|>",
    "Here is my thought process:",
    "Here is my response:",
    "<response>",
    "</response>",
    "w",
    "{\"name\": \"w\", \"parameters\": {}}",
    "{}",
    "{",
    "\"",
    "[",
    "w(n=1)",
    "]",
    ";",
    "\n",
    " ",
    "ä",
    "ö",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn what_was_meant_comes_back(
        format in formats(),
        answer in answers(),
        lengths in prop::collection::vec(1usize..12, 1..8),
    ) {
        let text = written(format, &answer);
        let whole = parse_as(&mut fresh(format), &[&text]);
        let pieces = cut(&text, &lengths);
        prop_assert_eq!(&parse_as(&mut fresh(format), &pieces), &whole, "{}", &text);
        let chars = cut(&text, &[1]);
        prop_assert_eq!(&parse_as(&mut fresh(format), &chars), &whole, "{}", &text);
        prop_assert_eq!(&whole.reasoning, &answer.reasoning, "{}", &text);
        prop_assert_eq!(&whole.text, &answer.text, "{}", &text);
        let calls: Vec<(String, String)> = answer
            .calls
            .iter()
            .map(|(name, arguments)| ((*name).into(), Value::Object(arguments.clone()).to_string()))
            .collect();
        prop_assert_eq!(&whole.calls, &calls, "{}", &text);
    }

    #[test]
    fn without_tools_nothing_is_a_call(format in formats(), answer in answers()) {
        let text = written(format, &answer);
        let mut markup = Markup::new(format, Tools::default(), true, Opening::Free);
        let parsed = parse_as(&mut markup, &cut(&text, &[3]));
        prop_assert!(parsed.calls.is_empty());
        prop_assert_eq!(&parsed.reasoning, &answer.reasoning);
        let first = answer.calls.first().and_then(|(_, arguments)| arguments.get("n"));
        prop_assert!(first.is_none_or(|n| parsed.text.contains(&n.to_string())), "{}", &text);
    }

    #[test]
    fn an_answer_cut_anywhere_loses_nothing(format in formats(), answer in answers(), at: prop::sample::Index) {
        let text = written(format, &answer);
        let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let cut_text = &text[..cuts[at.index(cuts.len())]];
        let whole = parse_as(&mut fresh(format), &[cut_text]);
        let chars = cut(cut_text, &[1]);
        prop_assert_eq!(&parse_as(&mut fresh(format), &chars), &whole, "{}", cut_text);
        for (index, call) in whole.calls.iter().enumerate() {
            let meant = &answer.calls[index];
            let arguments = Value::Object(meant.1.clone()).to_string();
            prop_assert_eq!((call.0.as_str(), &call.1), (meant.0, &arguments), "{}", cut_text);
        }
        let shown = format!("{}{}{:?}", whole.reasoning, whole.text, whole.calls);
        for letter in ["🦀", "é"] {
            let count = |text: &str| text.matches(letter).count();
            prop_assert_eq!(count(&shown), count(cut_text), "{}: {}", cut_text, &shown);
        }
    }

    #[test]
    fn nonsense_is_cut_anywhere_and_keeps_its_letters(
        format in formats(),
        parts in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..14),
        lengths in prop::collection::vec(1usize..12, 1..8),
        thinking: bool,
        parallel: bool,
    ) {
        let opening = || if thinking { Opening::Thinking } else { Opening::Free };
        let fresh = || Markup::new(format, tools(), parallel, opening());
        let text = parts.concat();
        let whole = parse_as(&mut fresh(), &[&text]);
        prop_assert_eq!(&parse_as(&mut fresh(), &cut(&text, &lengths)), &whole, "{}", &text);
        prop_assert_eq!(&parse_as(&mut fresh(), &cut(&text, &[1])), &whole, "{}", &text);
        prop_assert!(parallel || whole.calls.len() <= 1);
        let shown = format!("{}{}{:?}", whole.reasoning, whole.text, whole.calls);
        for letter in ["ä", "ö"] {
            let count = |text: &str| text.matches(letter).count();
            // After the one call that is wanted nothing counts; what stands in a header is none
            // of the answer.
            let header = format == Format::Harmony && text.contains("<|message|>");
            let all = !header && (parallel || whole.calls.is_empty());
            prop_assert!(!all || count(&shown) == count(&text), "{}: {}", &text, &shown);
        }
    }
}

#[test]
fn a_call_within_reasoning_is_still_a_call() {
    for (_, format) in Format::NAMED {
        let arguments = json!({"city": "Oslo"}).as_object().cloned().unwrap();
        let calls = vec![("w", arguments)];
        let call = Answer { reasoning: String::new(), text: "I ask.".into(), calls };
        let mut markup = Markup::new(format, tools(), true, Opening::Thinking);
        let text = written(format, &call);
        // Reasoning in Harmony is a message; a call within it begins the next.
        let parsed = parse_as(&mut markup, &cut(&text, &[2]));
        assert_eq!(parsed.calls.len(), 1, "{format:?}: {text}");
        let said = if format == Format::Harmony { parsed.text } else { parsed.reasoning };
        assert_eq!(said, "I ask.", "{format:?}");
    }
}

#[test]
fn a_mark_alone_is_said() {
    for (format, mark) in [
        (Format::Kimi, "<|tool_calls_section_begin|>"),
        (Format::Kimi, "<|tool_calls_section_begin|><|tool_call_begin|>"),
        (Format::MiniMax, "<minimax:tool_call>\n"),
        (Format::MiniMax, "<minimax:tool_call></minimax:tool_call>"),
        (Format::DeepSeek, "<｜tool▁calls▁begin｜>"),
        (Format::Mistral, "[TOOL_CALLS]"),
        (Format::Granite, "<|tool_call|>"),
        (Format::Llama, "<|python_tag|>"),
        (Format::QwenCoder, "<tool_call>\n<function=w>"),
        (Format::Harmony, "<|channel|>commentary to=functions.w<|message|>"),
    ] {
        let parsed = parse_as(&mut fresh(format), &[mark]);
        assert!(!parsed.text.is_empty() && parsed.calls.is_empty(), "{format:?} {mark}");
    }
}

#[test]
fn what_stands_behind_a_recipient_without_a_message_is_said() {
    for text in [" to=functions.w<|tool_call|>ä", "<|start|>to=functions.w(ä)"] {
        let parsed = parse_as(&mut fresh(Format::Harmony), &cut(text, &[1]));
        assert!(parsed.text.contains('ä') && parsed.calls.is_empty(), "{text}: {parsed:?}");
    }
    let parsed = parse_as(&mut fresh(Format::Harmony), &["Yes.<|start|>assistant to=functions.w"]);
    assert_eq!(parsed.text, "Yes.", "a frame says nothing");
}

#[test]
fn an_ordinary_answer_in_json_is_no_call() {
    for text in [
        r#"{"name": "Bob", "parameters": {"age": 3}}"#,
        r#"{"answer": 42}"#,
        r#"{"name": "w", "parameters": {}, "why": "no reason"}"#,
        r#"[1, 2, 3]"#,
        "[w] is a letter",
        r#"[{"name": "w"}]"#,
        r#"So: {"name": "w", "parameters": {}}"#,
        "{",
    ] {
        for (_, format) in Format::NAMED {
            let parsed = parse_as(&mut fresh(format), &cut(text, &[1]));
            assert_eq!((parsed.text.as_str(), parsed.calls.len()), (text, 0), "{format:?}");
        }
    }
}

#[test]
fn a_long_ordinary_answer_in_json_is_not_held_back() {
    let mut markup = fresh(Format::Llama);
    let mut out = Vec::new();
    markup.push(r#"{"answer": "it "#, &mut out);
    assert_eq!(out, vec![Piece::Text(r#"{"answer": "it"#.into())]);
}

#[test]
fn a_demanded_call_is_read_in_every_format() {
    for (_, format) in Format::NAMED {
        let opening = Opening::Call(r#"{"name": "w", "arguments": "#.into());
        let mut markup = Markup::new(format, tools(), true, opening);
        let parsed = parse_as(&mut markup, &[r#"{"city": "Oslo"}}"#, "</tool_call>"]);
        assert_eq!((parsed.calls, parsed.text.as_str()), (vec![call()], ""), "{format:?}");
    }
}

/// Bytes of a fuzzer as text: marks and pieces of them, letters, and where it is cut.
fn read_bytes(bytes: &[u8]) -> (Format, Vec<String>) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let format = Format::NAMED[usize::from(*first) % Format::NAMED.len()].1;
    let mut pieces = vec![String::new()];
    for byte in rest {
        let last = pieces.last_mut().unwrap();
        match byte {
            0..66 => last.push_str(PIECES[usize::from(*byte)]),
            66..132 => {
                let piece = PIECES[usize::from(*byte) - 66];
                let half = piece.len().div_ceil(2);
                let half = (half..=piece.len()).find(|at| piece.is_char_boundary(*at));
                last.push_str(&piece[..half.unwrap()]);
            }
            132..160 => pieces.push(String::new()),
            byte => last.push(char::from(byte - 128)),
        }
    }
    (format, pieces)
}

#[test]
fn fuzzed_answers_are_read_alike_however_they_are_cut() {
    bolero::check!().with_iterations(4000).with_max_len(64).for_each(|bytes: &[u8]| {
        let (format, pieces) = read_bytes(bytes);
        let text = pieces.concat();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let whole = parse_as(&mut fresh(format), &[&text]);
        assert_eq!(parse_as(&mut fresh(format), &pieces), whole, "{format:?} {text:?}");
        for (_, arguments) in &whole.calls {
            assert!(serde_json::from_str::<Map<String, Value>>(arguments).is_ok(), "{arguments}");
        }
    });
}

/// A model that opens the reasoning which its prompt has opened already; an answer that is cut in a
/// mark, or in a header.
#[test]
fn marks_where_none_is_needed_are_not_told() {
    for (_, format) in Format::NAMED {
        let Some((open, close)) = format.tags().and_then(|tags| tags.reasoning.first()) else {
            continue;
        };
        let text = format!("{open}\nhm{close}\nyes");
        let markup = || Markup::new(format, tools(), true, Opening::Thinking);
        for pieces in [vec![text.as_str()], cut(&text, &[1])] {
            let parsed = parse_as(&mut markup(), &pieces);
            let told = (parsed.reasoning.trim(), parsed.text.trim());
            assert_eq!(told, ("hm", "yes"), "{format:?}");
        }
        let cut_open = &open[..open.len() - 1];
        if cut_open.len() >= CUT_TAG {
            for opening in [Opening::Free, Opening::Thinking] {
                let parsed =
                    parse_as(&mut Markup::new(format, tools(), true, opening), &[cut_open]);
                assert_eq!((parsed.reasoning, parsed.text), Default::default(), "{format:?}");
            }
        }
    }
    let header = "<|channel|>commentary to=functions.w";
    for end in 12..header.len() {
        let mut markup = Markup::new(Format::Harmony, tools(), true, Opening::Free);
        let parsed = parse_as(&mut markup, &[&header[..end]]);
        assert_eq!(parsed.text, "", "{}", &header[..end]);
    }
}

#[test]
fn what_stands_before_the_arguments_of_a_mistral_call_is_not_lost() {
    let text = "[TOOL_CALLS]w[ARGS]ä{\"city\": \"Oslo\"}";
    let mut markup = Markup::new(Format::Mistral, tools(), true, Opening::Free);
    let parsed = parse_as(&mut markup, &[text]);
    assert!(parsed.calls.is_empty() && parsed.text.contains('ä'), "{}", parsed.text);
}
