//! Section C: Responses.

use super::*;
use crate::templates::strict;
use protocol::prompt::Refusal;

/// The names of a stream's events, in order.
fn names(told: &Told) -> Vec<String> {
    events(&told.stream.text).into_iter().map(|(name, _)| name).collect()
}

const USAGE: [&str; 5] = [
    "input_tokens",
    "input_tokens_details",
    "output_tokens",
    "output_tokens_details",
    "total_tokens",
];

/// The fields that Open Responses demands of a response object.
const FIELDS: &str = "id object created_at completed_at status incomplete_details model \
    previous_response_id instructions output error tools tool_choice truncation \
    parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs temperature \
    reasoning usage max_output_tokens max_tool_calls store background service_tier metadata \
    safety_identifier prompt_cache_key";

rows! {
    c1: "tools of the kinds `namespace` and `web_search` were refused",
        vec![
            responses(json!({"input": "hi", "tools": [
                {"type": "namespace", "name": "multi_agent_v1", "tools": [{
                    "type": "function", "name": "spawn",
                    "parameters": {"type": "object", "properties": {}},
                }]},
                {"type": "web_search", "external_web_access": true},
                {"type": "tool_search"}, {"type": "custom", "name": "patch"},
            ]}))
            .says(&call("spawn", "{}")),
        ],
        |told| {
            all_served(told);
            let item = &told[0].body()["output"][0];
            assert_eq!((&item["name"], &item["namespace"]), (&json!("spawn"), &json!("multi_agent_v1")));
            assert!(!told[0].text().contains("web_search"));
        };

    c2: "indexes, ids, sequence numbers or whole events were missing",
        vec![responses(json!({"input": "hi"})).says("hello")],
        |told| {
            let mut names = names(&told[0]);
            // Deltas are as many as there are.
            names.dedup();
            assert_eq!(names.join(" "), "response.created response.in_progress \
                response.output_item.added response.content_part.added response.output_text.delta \
                response.output_text.done response.content_part.done response.output_item.done \
                response.completed");
            for event in told[0].events("response.output_text.delta") {
                assert_eq!((&event["content_index"], &event["logprobs"]), (&json!(0), &json!([])));
            }
            let created = &told[0].events("response.created")[0]["response"];
            assert_eq!(created["id"], told[0].events("response.completed")[0]["response"]["id"]);
        };

    c4: "a call had only deltas, or only a `done`",
        vec![responses(json!({"input": "hi", "tools": [weather_of_responses()]}))
            .says(&call("get_weather", r#"{"city": "Oslo"}"#))],
        |told| {
            let deltas: String = told[0].events("response.function_call_arguments.delta").iter()
                .map(|event| event["delta"].as_str().unwrap())
                .collect();
            let done = &told[0].events("response.function_call_arguments.done")[0];
            let item = &told[0].events("response.output_item.done")[0]["item"];
            assert_eq!(deltas, r#"{"city":"Oslo"}"#);
            assert_eq!((&done["arguments"], &done["name"]), (&json!(deltas), &json!("get_weather")));
            assert_eq!(item["arguments"], deltas);
        };

    c6: "text parts of the input were lost",
        [
            json!("hi"),
            json!([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]),
            json!([{"type": "message", "role": "user", "content": "hi"}]),
        ]
        .map(|input| responses(json!({ "input": input })))
        .into(),
        |told| {
            same_tokens(told);
            assert!(told[0].text().contains("hi"));
        };

    c7: "a named tool was refused; a failure had no event",
        vec![
            responses(json!({
                "input": "hi", "tools": [weather_of_responses()],
                "tool_choice": {"type": "function", "name": "get_weather"},
            })),
            responses(json!({"input": "hi"}))
                .script(Script::Fail("so".into(), Refusal::Failed("out of memory".into()))),
        ],
        |told| {
            assert_eq!(told[0].status(), 200);
            assert_eq!(told[0].body()["tool_choice"]["name"], "get_weather");
            assert_eq!(names(&told[1]).last().unwrap(), "response.failed");
        };

    c9: "reasoning items in the input raised an exception",
        {
            let with = |reasoning: Value| responses(json!({"input": [
                {"role": "user", "content": "q"}, reasoning,
                {"role": "assistant", "content": "a"}, {"role": "user", "content": "more"},
            ]}))
            .on(strict());
            let thought = |kind: &str| json!([{"type": kind, "text": "my plan"}]);
            vec![
                with(json!({"type": "reasoning", "summary": thought("summary_text")})),
                with(json!({"type": "reasoning", "id": "rs_1", "summary": [],
                    "content": thought("reasoning_text"), "encrypted_content": null})),
                with(json!({"type": "reasoning", "summary": thought("summary_text"),
                    "encrypted_content": "from elsewhere"})),
            ]
        },
        |told| {
            same_tokens(told);
            assert!(told[0].text().contains("<think>\nmy plan\n</think>"));
        };

    c10: "usage was null in the last event, so that an agent never stopped",
        vec![
            responses(json!({"input": "hi"})),
            responses(json!({"input": "hi"})).cut_after("so"),
            responses(json!({"input": "hi"}))
                .script(Script::Fail("so".into(), Refusal::Failed("out of memory".into()))),
        ],
        |told| for (one, end) in told.iter().zip(["completed", "incomplete", "failed"]) {
            let usage = &one.events(&format!("response.{end}"))[0]["response"]["usage"];
            assert!(USAGE.iter().all(|key| !usage[key].is_null()), "{usage}");
            assert_eq!(usage["input_tokens"], one.tokens().len());
            assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
            assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());
        };

    c13: "fields of the response object were missing",
        vec![responses(json!({"input": "hi"}))],
        |told| {
            let created = &told[0].events("response.created")[0]["response"];
            for object in [&told[0].body(), created] {
                for field in FIELDS.split_whitespace() {
                    assert!(object.get(field).is_some(), "{field} in {object}");
                }
                assert!(object.get("user").is_none(), "a null there is a violation");
            }
        };
}
