use super::*;
use proptest::prelude::*;

fn response(turn: usize, text: &str) -> Value {
    let digits = format!("{turn:032x}");
    json!({
        "id": format!("resp_{digits}"),
        "output": [{ "type": "message", "id": format!("msg_{digits}00"), "text": text }],
    })
}

proptest! {
    /// However long the turns are, the records give back every item once and in order.
    #[test]
    fn the_history_is_whole(sizes in prop::collection::vec(0usize..90_000, 1..12)) {
        let mut records: HashMap<String, Arc<Record>> = HashMap::new();
        let (mut previous, mut expected) = (None, Vec::new());
        for (turn, size) in sizes.into_iter().enumerate() {
            let draft = Draft { previous: previous.take(), input: vec![said(&"x".repeat(size))] };
            let record = Arc::new(draft.record(response(turn, "y")));
            expected.extend(record.items().cloned());
            let (mut chain, mut found) = (vec![record.clone()], Vec::new());
            while let Some(base) = chain.last().unwrap().base.clone() {
                chain.push(records[&base].clone());
            }
            for record in chain.iter().rev() {
                found.extend(record.copied(usize::MAX).unwrap().0);
            }
            prop_assert_eq!(&found, &expected);
            records.insert(record.response["id"].as_str().unwrap().to_owned(), record.clone());
            previous = Some(record);
        }
        let ids: std::collections::BTreeSet<_> =
            expected.iter().map(|item| item["id"].as_str().unwrap()).collect();
        prop_assert_eq!(ids.len(), expected.len(), "each item has an id of its own");
    }

    #[test]
    fn any_body_can_be_asked_what_it_wants(body: Vec<u8>, id: String) {
        let _ = Wanted::of(&body);
        let _ = Wanted::of(json!({"input": [{"type": "item_reference", "id": id}]}).to_string().as_bytes());
    }
}

#[test]
fn a_body_names_responses_and_items() {
    let item = format!("fc_{:032x}0a", 7);
    let body = json!({
        "previous_response_id": "resp_1",
        "input": [
            {"type": "item_reference", "id": item},
            {"type": "item_reference", "id": format!("rs_{:032x}00", 7)},
            {"type": "item_reference", "id": "other"},
            {"role": "user", "content": "item_reference"},
        ],
    });
    let wanted = Wanted::of(body.to_string().as_bytes());
    assert_eq!(wanted.previous.as_deref(), Some("resp_1"));
    let named = BTreeSet::from([item, format!("rs_{:032x}00", 7)]);
    assert_eq!(wanted.referenced, BTreeMap::from([(format!("resp_{:032x}", 7), named)]));
    assert_eq!(Wanted::of(b"{\"input\": \"hi\"}"), Wanted::default());
}

/// Such a body is read all the same: what it names must not seem to be gone.
#[test]
fn a_body_with_half_a_character_names_as_much() {
    let wanted = Wanted::of(br#"{"previous_response_id": "resp_1", "input": "a\ud83d"}"#);
    assert_eq!(wanted.previous.as_deref(), Some("resp_1"));
}

/// What is named again and again takes no more memory than what is named once may take.
#[test]
fn each_copy_of_an_item_takes_room() {
    let item = json!({ "id": "msg_1", "content": "x".repeat(1 << 20) });
    let bytes = weight(&item);
    let mut recalled = Recalled::within(10 * bytes);
    recalled.offer(vec![item.clone()]);
    let named = |times| vec![json!({ "type": "item_reference", "id": "msg_1" }); times];
    assert_eq!(recalled.resolve(named(9)).unwrap(), vec![item; 9]);
    assert_eq!(recalled.bytes(), 9 * bytes);
    let error = recalled.resolve(named(20_000)).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("input[1].id"));
    assert!(error.message.contains(&format!("more than {} bytes", 10 * bytes)), "{error:?}");
}

/// A list of numbers takes far more memory than text of the same length.
#[test]
fn copies_are_weighed_by_their_memory() {
    let draft = Draft { previous: None, input: vec![json!({ "list": vec![0; 10_000] })] };
    let record = draft.record(response(1, "y"));
    assert!(record.copied(900_000).is_none());
    let (items, bytes) = record.copied(usize::MAX).unwrap();
    assert!(items.len() == 2 && (960_000..1_000_000).contains(&bytes), "{bytes}");
    let named = BTreeSet::from([format!("msg_{:032x}00", 1)]);
    let (items, bytes) = record.named(&named, 2_000).unwrap();
    assert!(items.len() == 1 && bytes < 2_000, "{bytes}");
}

proptest! {
    #[test]
    fn values_fit_where_their_texts_do(texts in prop::collection::vec("\\PC{0,8}|\"|\n", 0..8)) {
        let values: Vec<Value> = texts.into_iter().map(Value::String).collect();
        let bytes: usize = values.iter().map(|value| value.to_string().len()).sum();
        prop_assert!(fit(values.iter(), bytes));
        prop_assert!(bytes == 0 || !fit(values.iter(), bytes - 1));
    }
}
