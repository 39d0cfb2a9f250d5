//! Responses that are kept: gone on from, read, listed, deleted, from any node.

use crate::cluster::{Fake, RESPONSES, Reply, posted, request, say};
use crate::sse::response_body;
use axum::body::Body;
use axum::http::{Method, Request};
use frontend::{Kept, Limits, Unkept};
use protocol::hash::Token;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Nodes that keep their records together, each answering with its own text.
fn nodes(texts: &[&str]) -> Vec<Arc<Fake>> {
    let records = Arc::default();
    let node = |(i, text): (usize, &&str)| {
        let fake = Fake { records: Arc::clone(&records), ..Fake::new(say(text)) };
        fake.ids.store(1 + (i as u64) * 1000, Ordering::Relaxed);
        Arc::new(fake)
    };
    texts.iter().enumerate().map(node).collect()
}

async fn ask(node: &Arc<Fake>, body: &Value) -> Reply {
    request(node.clone(), Limits::default(), posted(RESPONSES, body.to_string())).await
}

/// The response to `body`, and the tokens of its prompt.
async fn responded(node: &Arc<Fake>, body: &Value) -> (Value, Vec<Token>) {
    let reply = ask(node, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let response = if body["stream"] == true { response_body(&reply.text) } else { reply.json() };
    (response, node.prompts.lock().unwrap().pop().unwrap().0.tokens.to_vec())
}

async fn call(node: &Arc<Fake>, method: Method, path: &str) -> Reply {
    let asked = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    request(node.clone(), Limits::default(), asked).await
}

fn id(value: &Value) -> &str {
    value["id"].as_str().unwrap()
}

const THOUGHT: &str = "<think>\nhm\n</think>\n\nhello";

#[tokio::test]
async fn a_conversation_goes_on_at_any_node() {
    let nodes = nodes(&[THOUGHT, "yes", "no"]);
    for stream in [false, true] {
        let whole = |input: Value| json!({"input": input, "instructions": "be brief", "stream": stream, "store": false});
        let first = json!({"input": "q", "instructions": "be brief", "stream": stream});
        let (one, _) = responded(&nodes[0], &first).await;
        assert_eq!(one["store"], true);
        assert_eq!(one.get("nvext"), None, "kept as it should be: nothing to say");
        let second = json!({
            "previous_response_id": id(&one), "input": [{"role": "user", "content": "and?"}],
            "instructions": "be brief", "stream": stream,
        });
        let (two, tokens) = responded(&nodes[1], &second).await;
        assert_eq!(two["previous_response_id"], one["id"]);
        let mut input = vec![json!({"role": "user", "content": "q"})];
        input.extend(one["output"].as_array().unwrap().iter().cloned());
        input.push(json!({"role": "user", "content": "and?"}));
        assert_eq!(tokens, responded(&nodes[2], &whole(input.clone().into())).await.1);
        let third = json!({
            "previous_response_id": id(&two), "input": "so", "instructions": "be brief",
            "stream": stream,
        });
        let (_, tokens) = responded(&nodes[2], &third).await;
        input.extend(two["output"].as_array().unwrap().iter().cloned());
        input.push(json!({"role": "user", "content": "so"}));
        assert_eq!(tokens, responded(&nodes[0], &whole(input.into())).await.1);
        // Its tokens can be counted as well.
        let counted = request(
            nodes[0].clone(),
            Limits::default(),
            posted("/v1/responses/input_tokens", third.to_string()),
        );
        assert_eq!(counted.await.json()["input_tokens"], tokens.len());
    }
}

/// Items that no template shows cost no tokens, but memory wherever they are read again.
#[tokio::test]
async fn what_a_request_names_has_the_limit_of_a_body() {
    let node = &nodes(&["yes"])[0];
    let limits = Limits { body_bytes: 200_000, ..Limits::default() };
    let ask = |body: Value| request(node.clone(), limits, posted(RESPONSES, body.to_string()));
    let hidden = json!({"type": "web_search_call", "note": "x".repeat(60_000)});
    let first = ask(json!({"input": [hidden, {"role": "user", "content": "q"}]})).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let first = first.json();
    let turn = |previous: &Value| {
        json!({
            "previous_response_id": id(previous), "input": [hidden, {"role": "user", "content": "q"}],
        })
    };
    let second = ask(turn(&first)).await;
    assert_eq!(second.status, 200, "{}", second.text);
    let third = ask(turn(&second.json())).await;
    assert_eq!(third.status, 400, "{}", third.text);
    assert_eq!(third.json()["error"]["param"], "previous_response_id");
    assert!(third.text.contains("more than 200000 bytes"), "{}", third.text);
}

const CALLS: &str = "<tool_call>{\"name\": \"w\", \"arguments\": {}}</tool_call>\
    <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";

#[tokio::test]
async fn results_that_came_in_another_order_are_those_of_their_calls_in_later_turns() {
    let nodes = nodes(&[CALLS, "yes", "no"]);
    let tools = json!([{"type": "function", "name": "w"}, {"type": "function", "name": "now"}]);
    let whole = |input: &[Value]| json!({"input": input, "tools": tools, "store": false});
    let (one, _) = responded(&nodes[0], &json!({"input": "q", "tools": tools})).await;
    let result = |call: usize| {
        json!({
            "type": "function_call_output", "call_id": one["output"][call]["call_id"],
            "output": format!("result {call}"),
        })
    };
    let results = [result(1), result(0)];
    let second = json!({"previous_response_id": id(&one), "input": results, "tools": tools});
    let (two, tokens) = responded(&nodes[1], &second).await;
    let mut input = vec![json!({"role": "user", "content": "q"})];
    input.extend(one["output"].as_array().unwrap().iter().cloned());
    input.extend(results);
    assert_eq!(tokens, responded(&nodes[0], &whole(&input)).await.1);
    let third = json!({"previous_response_id": id(&two), "input": "so", "tools": tools});
    let (_, tokens) = responded(&nodes[2], &third).await;
    input.extend(two["output"].as_array().unwrap().iter().cloned());
    input.push(json!({"role": "user", "content": "so"}));
    assert_eq!(tokens, responded(&nodes[0], &whole(&input)).await.1);
}

#[tokio::test]
async fn half_a_character_does_not_hide_what_a_body_names() {
    let node = &nodes(&["yes"])[0];
    let (one, _) = responded(node, &json!({"input": "q"})).await;
    let body = format!(r#"{{"previous_response_id": "{}", "input": "a\ud83d"}}"#, id(&one));
    let reply = request(node.clone(), Limits::default(), posted(RESPONSES, body)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

/// What no template shows costs no tokens, and must not push out what others keep.
#[tokio::test]
async fn what_no_prompt_shows_is_kept_up_to_a_bound() {
    for stream in [false, true] {
        let nodes = nodes(&["yes"]);
        let node = &nodes[0];
        let hidden = |bytes: usize| json!({"type": "web_search_call", "note": "x".repeat(bytes)});
        let user = json!({"role": "user", "content": "q"});
        let ask = |item: &Value, tools: &[Value]| json!({"input": [item, user], "tools": tools, "store": true, "stream": stream});
        let (one, _) = responded(node, &ask(&hidden(500_000), &[])).await;
        assert_eq!((&one["store"], one.get("nvext")), (&json!(true), None));
        for body in [ask(&hidden(2 << 20), &[]), ask(&user, &[hidden(2 << 20)])] {
            let (other, _) = responded(node, &body).await;
            assert_eq!((&other["status"], &other["store"]), (&json!("completed"), &json!(false)));
            assert_eq!(other["nvext"]["stored"]["state"], "failed");
            let reason = other["nvext"]["stored"]["reason"].as_str().unwrap();
            assert!(reason.contains("bytes of memory"), "{reason}");
        }
        assert_eq!(node.records.lock().unwrap().len(), 1);
    }
}

/// Items take more memory than the messages that they become.
#[tokio::test]
async fn a_history_of_many_short_turns_is_kept() {
    let node = Arc::new(Fake { context: 1 << 24, ..Fake::new(say("yes")) });
    let turn = |turn: usize| {
        [
            json!({"role": "user", "content": "q"}),
            json!({
                "type": "reasoning", "id": format!("rs_{turn:034x}"),
                "summary": [{"type": "summary_text", "text": "a"}],
            }),
            json!({
                "type": "message", "id": format!("msg_{turn:034x}"), "role": "assistant",
                "status": "completed",
                "content": [{
                    "type": "output_text", "text": "a", "annotations": [], "logprobs": [],
                }],
            }),
        ]
    };
    let mut input: Vec<Value> = (0..2000).flat_map(turn).collect();
    input.push(json!({"role": "user", "content": "q"}));
    let (response, _) = responded(&node, &json!({"input": input})).await;
    assert_eq!((&response["store"], response.get("nvext")), (&json!(true), None));
}

#[tokio::test]
async fn items_are_counted_before_they_are_looked_at() {
    let node = &nodes(&["yes"])[0];
    let input = vec![json!({"type": "item_reference", "id": "x"}); 100_001];
    let reply = ask(node, &json!({"input": input})).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["param"]), (400, &json!("input")));
    assert!(reply.text.contains("at most 100000 items"), "{}", reply.text);
}

#[tokio::test]
async fn items_of_countless_responses_are_not_looked_up() {
    let node = &nodes(&["yes"])[0];
    let name = |n: usize| json!({"type": "item_reference", "id": format!("msg_{n:032x}00")});
    let input: Vec<Value> = (0..1025).map(name).collect();
    let reply = ask(node, &json!({"input": input})).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["error"]["param"]), (400, &json!("input")));
    assert!(reply.text.contains("at most 1024"), "{}", reply.text);
}

/// What is deleted in part can be deleted again, until nothing is left of it.
#[tokio::test]
async fn a_deletion_that_was_cut_off_is_done_again() {
    let node = &nodes(&["yes"])[0];
    // Letters that do not shrink: several records.
    let mut dice = 1u64;
    let letters = std::iter::repeat_with(|| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(33 + (dice >> 33) as u8 % 90)
    });
    let text: String = letters.filter(|c| *c != '"' && *c != '\\').take(700_000).collect();
    let hidden = json!({"type": "web_search_call", "note": text});
    let (one, _) =
        responded(node, &json!({"input": [hidden, {"role": "user", "content": "q"}]})).await;
    let parts = node.records.lock().unwrap().len();
    assert!(parts >= 3, "{parts}");
    let path = format!("{RESPONSES}/{}", id(&one));
    node.forgets.store(1, Ordering::Relaxed);
    assert_eq!(call(node, Method::DELETE, &path).await.status, 503);
    node.forgets.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(call(node, Method::DELETE, &path).await.status, 200);
    assert_eq!(node.records.lock().unwrap().len(), 0);
    assert_eq!(call(node, Method::DELETE, &path).await.status, 404);
}

#[tokio::test]
async fn an_item_whose_id_is_null_gets_one() {
    let node = &nodes(&["yes"])[0];
    let input = json!([{"role": "user", "content": "q", "id": null}]);
    let (one, _) = responded(node, &json!({"input": input})).await;
    let path = format!("{RESPONSES}/{}/input_items", id(&one));
    let items = call(node, Method::GET, &path).await.json();
    assert!(items["data"][0]["id"].is_string() && items["last_id"].is_string(), "{items}");
}

#[tokio::test]
async fn items_are_named_instead_of_sent() {
    let nodes = nodes(&[THOUGHT, "yes"]);
    let (one, _) = responded(&nodes[0], &json!({"input": "q"})).await;
    let output = one["output"].as_array().unwrap();
    let turn = |items: Vec<Value>| {
        let mut input = vec![json!({"role": "user", "content": "q"})];
        input.extend(items);
        input.push(json!({"role": "user", "content": "and?"}));
        json!({"input": input, "store": false})
    };
    let named: Vec<Value> =
        output.iter().map(|item| json!({"type": "item_reference", "id": item["id"]})).collect();
    let (_, tokens) = responded(&nodes[1], &turn(named)).await;
    assert_eq!(tokens, responded(&nodes[1], &turn(output.clone())).await.1);
    let strange = [
        json!({"type": "item_reference", "id": "msg_1"}),
        json!({"type": "item_reference", "id": format!("msg_{}00", "0".repeat(32))}),
        json!({"type": "item_reference"}),
        json!({"type": "item_reference", "id": {"a": 1}}),
    ];
    for item in strange {
        let reply = ask(&nodes[0], &turn(vec![item.clone()])).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["error"]["param"].as_str()),
            (400, Some("input[1].id")),
            "{item}"
        );
    }
}

#[tokio::test]
async fn a_kept_response_is_read_listed_and_deleted() {
    let nodes = nodes(&[THOUGHT, "x"]);
    let input = json!([
        {"role": "user", "content": "a"},
        {"type": "message", "id": "mine", "role": "user", "content": "b"},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}]},
    ]);
    let (one, _) = responded(&nodes[0], &json!({"input": input, "metadata": {"k": "v"}})).await;
    let path = format!("{RESPONSES}/{}", id(&one));
    assert_eq!(call(&nodes[1], Method::GET, &path).await.json(), one);
    let items = async |query: &str| {
        call(&nodes[1], Method::GET, &format!("{path}/input_items{query}")).await
    };
    let all = items("?order=asc").await.json();
    let ids: Vec<&str> = all["data"].as_array().unwrap().iter().map(id).collect();
    assert_eq!((ids.len(), ids[1], &all["has_more"]), (3, "mine", &json!(false)));
    let page = items("?limit=2").await.json();
    assert_eq!(
        (&page["first_id"], &page["last_id"], &page["has_more"]),
        (&json!(ids[2]), &json!("mine"), &json!(true))
    );
    let rest = items("?limit=2&after=mine").await.json();
    assert_eq!((id(&rest["data"][0]), &rest["has_more"]), (ids[0], &json!(false)));
    for (query, param) in [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?order=up", "order"),
        ("?after=x", "after"),
    ] {
        let reply = items(query).await;
        assert_eq!(
            (reply.status.as_u16(), reply.json()["error"]["param"].as_str()),
            (400, Some(param))
        );
    }
    let many = items("?limit=many").await;
    assert_eq!((many.status.as_u16(), &many.json()["error"]["param"]), (400, &json!("limit")));
    assert_eq!(call(&nodes[1], Method::GET, &format!("{path}?stream=true")).await.status, 400);

    // Node 0 still remembers what node 1 deletes.
    let gone = call(&nodes[1], Method::DELETE, &path).await;
    assert_eq!(gone.json(), json!({"id": one["id"], "object": "response", "deleted": true}));
    for node in &nodes {
        for method in [Method::GET, Method::DELETE] {
            let reply = call(node, method, &path).await;
            assert_eq!(
                (reply.status.as_u16(), reply.json()["error"]["param"].as_str()),
                (404, Some("id"))
            );
        }
        let on = ask(node, &json!({"previous_response_id": one["id"], "input": "x"})).await;
        assert_eq!(on.status, 400);
        assert_eq!(on.json()["error"]["code"], "previous_response_not_found");
        assert_eq!(on.json()["error"]["param"], "previous_response_id");
    }
    assert!(nodes[0].records.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not() {
    let nodes = nodes(&["x"]);
    let (one, _) = responded(&nodes[0], &json!({"input": "q", "store": false})).await;
    assert_eq!(one["store"], false);
    assert!(nodes[0].records.lock().unwrap().is_empty());
    assert_eq!(
        call(&nodes[0], Method::GET, &format!("{RESPONSES}/{}", id(&one))).await.status,
        404
    );
}

#[tokio::test]
async fn a_response_that_is_badly_kept_says_so() {
    for stream in [false, true] {
        let ask = json!({"input": "q", "stream": stream});
        let degraded = Arc::new(Fake { keeping: Ok(Kept::Degraded), ..Fake::new(say("x")) });
        let (response, _) = responded(&degraded, &ask).await;
        assert_eq!(
            (&response["store"], &response["nvext"]["stored"]["state"]),
            (&json!(true), &json!("degraded"))
        );
        let lost = Unkept("no owner answers".into());
        let failed = Arc::new(Fake { keeping: Err(lost), ..Fake::new(say("x")) });
        let (response, _) = responded(&failed, &ask).await;
        assert_eq!(response["store"], false, "the answer itself is not lost");
        assert_eq!(
            response["nvext"]["stored"],
            json!({"state": "failed", "reason": "no owner answers"})
        );
        assert_eq!(response["status"], "completed");
        // Not to be reached is not the same as not to be there.
        let reply = call(&failed, Method::GET, &format!("{RESPONSES}/{}", id(&response))).await;
        assert_eq!(reply.status, 503);
        assert!(reply.headers.contains_key("retry-after"));
    }
}

#[tokio::test]
async fn records_tell_nothing_and_changed_ones_count_as_lost() {
    let nodes = nodes(&["the answer"]);
    let (one, _) = responded(&nodes[0], &json!({"input": "the secret question"})).await;
    let path = format!("{RESPONSES}/{}", id(&one));
    let fresh = || Arc::new(Fake { records: nodes[0].records.clone(), ..Fake::new(say("x")) });
    assert_eq!(call(&fresh(), Method::GET, &path).await.json(), one);
    {
        let mut records = nodes[0].records.lock().unwrap();
        let value = records.values_mut().next().unwrap();
        assert!(!value.windows(6).any(|w| w == b"secret" || w == b"answer"));
        let last = value.len() - 1;
        value[last] ^= 1;
    }
    assert_eq!(call(&fresh(), Method::GET, &path).await.status, 404);
}

#[tokio::test]
async fn a_long_conversation_is_read_back_whole() {
    let nodes = nodes(&["ok", "ok"]);
    let noise = |turn: usize| {
        // Text that does not compress away.
        let hash = |i: usize| blake3::hash(format!("{turn} {i}").as_bytes()).to_string();
        (0..1200).map(hash).collect::<Vec<_>>().join(" ")
    };
    let wide = |node: &Arc<Fake>| {
        Arc::new(Fake {
            context: 1 << 24,
            records: node.records.clone(),
            ids: node.ids.fetch_add(50, Ordering::Relaxed).into(),
            ..Fake::new(say("ok"))
        })
    };
    let (mut previous, mut input) = (Value::Null, Vec::new());
    for turn in 0..5 {
        // Another node each time, which remembers nothing.
        let node = wide(&nodes[0]);
        let body = json!({"previous_response_id": previous, "input": noise(turn)});
        let (response, tokens) = responded(&node, &body).await;
        input.push(json!({"role": "user", "content": noise(turn)}));
        let whole = json!({"input": input, "store": false});
        assert_eq!(tokens, responded(&node, &whole).await.1, "turn {turn}");
        input.extend(response["output"].as_array().unwrap().iter().cloned());
        previous = response["id"].clone();
    }
    let kept: usize = nodes[0].records.lock().unwrap().values().map(Vec::len).sum();
    let said: usize = (0..5).map(|turn| noise(turn).len()).sum();
    assert!(kept < 3 * said, "{kept} bytes kept of {said}: turns are not written again and again");
    assert!(nodes[0].records.lock().unwrap().values().all(|value| value.len() <= 1 << 20));
}

#[tokio::test]
async fn packed_bodies_are_refused_by_name() {
    let node = Arc::new(Fake::new(say("x")));
    for path in [RESPONSES, "/v1/messages", "/tokenize"] {
        let mut asked = posted(path, "{}");
        asked.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        let reply = request(node.clone(), Limits::default(), asked).await;
        assert_eq!(reply.status, 400);
        assert!(reply.text.contains("content-encoding"), "{}", reply.text);
    }
    // What is only counted may not be as long as what is served.
    let long = format!("{{\"prompt\": \"{}\"}}", "z".repeat(9 << 20));
    let reply = request(node, Limits::default(), posted("/tokenize", long)).await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn a_deletion_that_no_node_could_keep_is_not_told_as_done() {
    let node = Arc::new(Fake { losing: true, ..Fake::new(say("x")) });
    let (one, _) = responded(&node, &json!({"input": "q"})).await;
    let reply = call(&node, Method::DELETE, &format!("{RESPONSES}/{}", id(&one))).await;
    assert_eq!(reply.status, 503, "{}", reply.text);
}
