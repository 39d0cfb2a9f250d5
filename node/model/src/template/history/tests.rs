use super::*;
use proptest::prelude::*;

/// A plain way to give every call its result: looks at all results for each call.
fn plain_one_call_each(messages: Vec<Placed<'_>>) -> Vec<Placed<'_>> {
    let mut out = Vec::new();
    let mut rest = VecDeque::from(messages);
    while let Some((index, message)) = rest.pop_front() {
        let calls = calls(&message);
        if calls.len() < 2 {
            out.push((index, message));
            continue;
        }
        for (nth, call) in calls.iter().enumerate() {
            let mut single = match nth {
                0 => message.as_ref().clone(),
                _ => json!({"role": "assistant", "content": ""}),
            };
            single["tool_calls"] = json!([call]);
            out.push((index, Cow::Owned(single)));
            let results = rest.iter().take_while(|(_, next)| is_result(next));
            let mut ids = results.map(|(_, result)| result.get("tool_call_id"));
            let found = ids.position(|id| id.is_some() && id == call.get("id"));
            let first = rest.front().filter(|(_, next)| is_result(next));
            let first = first.filter(|(_, next)| next.get("tool_call_id").is_none()).map(|_| 0);
            if let Some(at) = found.or(first) {
                out.extend(rest.remove(at));
            }
        }
    }
    out
}

/// A plain way to number calls: looks at all open calls for each result.
fn plain_numbered(messages: Vec<Placed<'_>>, ids: Ids) -> Vec<Placed<'_>> {
    let mut count = 0;
    let mut open: VecDeque<(Option<Value>, Value)> = VecDeque::new();
    let mut out = Vec::new();
    for (index, message) in messages {
        let mut message = message.into_owned();
        if is_result(&message) {
            let theirs = message.get("tool_call_id");
            let at = open.iter().position(|(id, _)| id.is_some() && id.as_ref() == theirs);
            if let Some((_, id)) = open.remove(at.unwrap_or(0)) {
                message["tool_call_id"] = id;
            }
        } else if !calls(&message).is_empty() {
            open.clear();
            for call in message["tool_calls"].as_array_mut().unwrap() {
                let id = Value::String(ids.nth(count, name(call)));
                count += 1;
                let theirs = call.as_object_mut().unwrap().insert("id".into(), id.clone());
                open.push_back((theirs, id));
            }
        }
        out.push((index, Cow::Owned(message)));
    }
    out
}

fn call(name: &str, id: Option<usize>) -> Value {
    let mut call = json!({"type": "function", "function": {"name": name, "arguments": {}}});
    if let Some(id) = id {
        call["id"] = format!("c{id}").into();
    }
    call
}

fn result(content: usize, name: Option<&str>, id: Option<usize>) -> Value {
    let mut result = json!({"role": "tool", "content": content.to_string()});
    if let Some(name) = name {
        result["name"] = name.into();
    }
    if let Some(id) = id {
        result["tool_call_id"] = format!("c{id}").into();
    }
    result
}

/// A turn with calls: with ids, some results in any order; without, the first results in order, or
/// all with the names of their tools.
fn turn() -> impl Strategy<Value = Vec<Value>> {
    let names = prop::collection::vec("[ab]", 0..6);
    let turn = names.prop_flat_map(|names| {
        let order: Vec<usize> = (0..names.len()).collect();
        (Just(names), Just(order).prop_shuffle(), 0usize..6, 0..3u8)
    });
    turn.prop_map(|(names, order, answered, kind)| {
        let calls: Vec<Value> = names
            .iter()
            .enumerate()
            .map(|(nth, name)| call(name, (kind == 0).then_some(nth)))
            .collect();
        let mut messages = vec![
            json!({"role": "user", "content": "q"}),
            json!({"role": "assistant", "content": "a", "tool_calls": calls}),
        ];
        match kind {
            0 => {
                let with_id = |nth| result(nth, None, Some(nth));
                messages.extend(order.into_iter().take(answered).map(with_id));
            }
            1 => messages.extend((0..names.len().min(answered)).map(|nth| result(nth, None, None))),
            _ => {
                let named = |(nth, name): (usize, &String)| result(nth, Some(name.as_str()), None);
                messages.extend(names.iter().enumerate().map(named));
            }
        }
        messages
    })
}

fn owned(messages: Vec<Placed<'_>>) -> Vec<(usize, Value)> {
    messages.into_iter().map(|(index, message)| (index, message.into_owned())).collect()
}

fn skills(one_call: bool, ids: Ids) -> Skills {
    Skills { calls: true, one_call, ids, ..Skills::default() }
}

proptest! {
    #[test]
    fn calls_and_results_find_each_other_as_by_looking_at_all(
        turns in prop::collection::vec(turn(), 0..5),
    ) {
        let messages = turns.concat();
        let placed = || messages.iter().map(Cow::Borrowed).enumerate().collect::<Vec<_>>();
        for ids in [Ids::None, Ids::Nine, Ids::Named] {
            for one_call in [false, true] {
                let plain = if one_call { plain_one_call_each(placed()) } else { placed() };
                let plain = if ids == Ids::None { plain } else { plain_numbered(plain, ids) };
                let found = owned(shaped(&messages, &skills(one_call, ids)));
                prop_assert_eq!(found, owned(plain));
            }
        }
    }
}

/// Where not all calls have results, and there are no ids, names tell them apart.
#[test]
fn a_result_without_an_id_belongs_to_the_tool_that_it_names() {
    let messages = [
        json!({"role": "assistant", "content": "", "tool_calls": [call("a", None), call("b", None)]}),
        result(0, Some("b"), None),
    ];
    let numbered = owned(shaped(&messages, &skills(false, Ids::Nine)));
    assert_eq!(numbered[1].1["tool_call_id"], numbered[0].1["tool_calls"][1]["id"]);
    let split = owned(shaped(&messages, &skills(true, Ids::None)));
    let places: Vec<usize> = split.iter().map(|(index, _)| *index).collect();
    assert_eq!(places, [0, 0, 1]);
}

/// The work grows with the history, not with its square.
#[test]
fn histories_of_very_many_calls() {
    const MANY: usize = 50_000;
    let names = [vec!["a"; MANY], vec!["b"; MANY]].concat();
    let calls: Vec<Value> = names.iter().map(|name| call(name, None)).collect();
    let mut messages = vec![json!({"role": "assistant", "content": "", "tool_calls": calls})];
    messages.extend((0..MANY).map(|nth| result(nth, Some("b"), None)));
    let shaped = owned(shaped(&messages, &skills(true, Ids::Nine)));
    assert_eq!(shaped.len(), 3 * MANY);
    let (call, answer) = (&shaped[MANY].1, &shaped[MANY + 1].1);
    assert_eq!(call["tool_calls"][0]["id"], "000050000");
    assert_eq!((&answer["content"], &answer["tool_call_id"]), (&json!("0"), &json!("000050000")));
}
