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
            chain.iter().rev().for_each(|record| record.append_to(&mut found));
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
