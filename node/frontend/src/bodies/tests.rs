use super::*;
use crate::{chat, messages};
use proptest::prelude::*;
use serde_json::{Value, json};

type Dialect = fn(&[u8], &mut History) -> Result<Ask, ApiError>;

const CHAT: Dialect = chat::request::read_on;
const MESSAGES: Dialect = messages::request::read_on;

fn tenant(name: &str) -> TenantId {
    TenantId(name.into())
}

fn read(bodies: &Bodies, body: &str, dialect: Dialect) -> Result<Ask, ApiError> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    bodies.read(&tenant("a"), &body, List::Chat, dialect)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A history that is long enough to be remembered.
fn long() -> Vec<Value> {
    vec![user(&"word ".repeat(SMALL / 4)), json!({"role": "assistant", "content": "ok"})]
}

fn body(messages: &[Value]) -> String {
    json!({"model": "m", "messages": messages, "max_tokens": 9}).to_string()
}

/// Which of the messages of one are the very ones of the other.
fn shared(one: &Ask, other: &Ask) -> usize {
    let same = |(a, b): &(&Message, &Message)| std::ptr::eq::<Value>(&***a, &***b);
    one.messages.iter().zip(&other.messages).take_while(same).count()
}

#[test]
fn what_was_read_is_not_read_again() {
    for dialect in [CHAT, MESSAGES] {
        let bodies = Bodies::new(1 << 20);
        let mut history = long();
        let first = read(&bodies, &body(&history), dialect).unwrap();
        history.push(user("more"));
        let second = read(&bodies, &body(&history), dialect).unwrap();
        assert_eq!((shared(&first, &second), second.messages.len()), (2, 3));
        // Again, on from there, and cut short.
        assert_eq!(shared(&second, &read(&bodies, &body(&history), dialect).unwrap()), 3);
        history.extend([json!({"role": "assistant", "content": "x"}), user("and")]);
        let third = read(&bodies, &body(&history), dialect).unwrap();
        assert_eq!((shared(&second, &third), third.messages.len()), (3, 5));
        assert_eq!(shared(&first, &read(&bodies, &body(&history[..2]), dialect).unwrap()), 2);
        // Another branch.
        history[3] = json!({"role": "assistant", "content": "y"});
        assert_eq!(shared(&third, &read(&bodies, &body(&history), dialect).unwrap()), 3);
    }
}

#[test]
fn tenants_share_nothing_and_memory_is_bounded() {
    let bodies = Bodies::new(200_000);
    let whole = Bytes::from(body(&long()));
    let first = bodies.read(&tenant("a"), &whole, List::Chat, CHAT).unwrap();
    let other = bodies.read(&tenant("b"), &whole, List::Chat, CHAT).unwrap();
    assert_eq!(shared(&first, &other), 0);
    for n in 0..40 {
        let mut history = long();
        history[0]["content"] = json!(format!("{n}{}", history[0]["content"]));
        read(&bodies, &body(&history), CHAT).unwrap();
    }
    assert!(bodies.lock().bytes() <= 200_000);
}

#[test]
fn a_history_that_goes_on_is_kept_once() {
    let bodies = Bodies::new(1 << 24);
    let mut history = long();
    read(&bodies, &body(&history), CHAT).unwrap();
    let before = bodies.lock().bytes();
    for n in 0..30 {
        history.push(user(&n.to_string()));
        read(&bodies, &body(&history), CHAT).unwrap();
    }
    assert!(bodies.lock().bytes() < before * 2);
}

#[test]
fn errors_are_those_of_the_whole_body() {
    let good = body(&long());
    let end = good.find("],").unwrap();
    let (head, tail) = good.split_at(end);
    for more in [
        ",",
        ",,",
        ", ",
        "x",
        ",{",
        ",{}",
        ",1",
        ",\"a\"",
        ",null",
        ",[]",
        ",[\"user\",\"a\"]",
        ",{\"role\":\"user\"}",
        ",{\"role\":\"none\",\"content\":\"a\"}",
        "]",
        "}",
        "],\"messages\":[",
        ",{\"role\":\"user\",\"content\":\"\\ud800\"}",
        ",{\"role\":\"user\",\"content\":\"\\x\"}",
        ",{\"role\":\"user\",\"content\":7}",
        " ,\n{\"role\":\"user\",\"content\":\"a\"} ",
    ] {
        for dialect in [CHAT, MESSAGES] {
            let bodies = Bodies::new(1 << 20);
            read(&bodies, &good, dialect).unwrap();
            for wrong in [format!("{head}{more}{tail}"), format!("{head}{more}")] {
                let plain = dialect(wrong.as_bytes(), &mut History::default());
                let read = read(&bodies, &wrong, dialect);
                assert_eq!(format!("{read:?}"), format!("{plain:?}"), "{more}");
            }
        }
    }
}

/// Messages as clients write them, in both dialects.
fn message() -> impl Strategy<Value = Value> {
    let text = prop::sample::select(vec!["", "hi", "é世界", "a\"b\\c", "[{]}", "\u{1}\n", "x,y"]);
    (0..6u8, text.clone(), text).prop_map(|(kind, a, b)| match kind {
        0 => json!({"role": "user", "content": a}),
        1 => json!({"role": "user", "content": [{"type": "text", "text": a}]}),
        2 => {
            json!({"content": [{"type": "text", "text": a, "cache_control": {"type": "ephemeral"}}],
                    "role": "user"})
        }
        3 => json!({"role": "assistant", "content": a, "tool_calls": [
            {"id": "c", "type": "function",
             "function": {"name": "w", "arguments": json!({"x": [b, {"y": b}]}).to_string()}},
        ]}),
        4 => json!({"role": "system", "content": a}),
        _ => json!({"role": "assistant", "content": b}),
    })
}

/// One turn: how much of the history stays, what is added, how it is written, and where it breaks.
type Step = (usize, Vec<Value>, u8, Option<(usize, u8)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let broken = prop::option::weighted(0.3, (any::<usize>(), any::<u8>()));
    let step = (0..8usize, prop::collection::vec(message(), 0..3), 0..4u8, broken);
    prop::collection::vec(step, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_body_is_read_as_without_memory(steps in steps(), chat: bool, small: bool) {
        let dialect = if chat { CHAT } else { MESSAGES };
        let bodies = Bodies::new(if small { 150_000 } else { 1 << 22 });
        let mut history = long();
        for (keep, more, style, broken) in steps {
            history.truncate(keep.max(1));
            history.extend(more);
            let tools = json!([{"name": "w", "input_schema": {"type": "object"},
                                "type": "function", "function": {"name": "w"}}]);
            let request = match style {
                0 => json!({"messages": history, "max_tokens": 9}),
                1 => json!({"tools": tools, "messages": history, "system": "s", "nvext": {}}),
                2 => json!({"n": 1, "x": "],}", "messages": history, "stop": ["a", "\""]}),
                _ => json!({"metadata": {"messages": [1]}, "system": [
                    {"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}},
                ], "messages": history, "tools": tools}),
            };
            let mut text = match style {
                2 => serde_json::to_string_pretty(&request).unwrap(),
                _ => request.to_string(),
            }.into_bytes();
            if let Some((at, byte)) = broken {
                // Mostly behind the long first message.
                let at = text.len() - 1 - at % text.len().min(400);
                text[at] = byte;
            }
            let plain = dialect(&text, &mut History::default());
            let read = bodies.read(&tenant("a"), &Bytes::from(text), List::Chat, dialect);
            prop_assert_eq!(format!("{read:?}"), format!("{plain:?}"));
        }
    }

    #[test]
    fn elements_are_found_where_they_are(messages in prop::collection::vec(message(), 0..6), pretty: bool) {
        let value = json!({"a": {"messages": [[]]}, "b": "messages", "c": 1.5e3, "messages": messages, "d": 0});
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap();
        let found = scan::elements(text.as_bytes(), "messages", usize::MAX).unwrap();
        prop_assert_eq!(found.ends.len(), messages.len());
        let mut begin = found.first;
        for (end, message) in found.ends.iter().zip(&messages) {
            let read: Value = serde_json::from_str(&text[begin..*end]).unwrap();
            prop_assert_eq!(&read, message);
            begin = end + scan::separator(&text.as_bytes()[*end..]).unwrap();
        }
        for cut in 0..text.len() {
            let _ = scan::elements(&text.as_bytes()[..cut], "messages", usize::MAX);
            let _ = scan::separator(&text.as_bytes()[cut..]);
        }
    }
}
