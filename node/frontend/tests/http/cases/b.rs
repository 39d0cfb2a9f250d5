//! Section B: Chat Completions.

use super::*;
use crate::templates::strict;

fn ask(extra: Value) -> Ask {
    let mut body = json!({"messages": [{"role": "user", "content": "go"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    chat(body)
}

fn with_tool() -> Ask {
    ask(json!({"tools": [weather()]}))
}

/// A history with one call, whose assistant message is given.
fn called(assistant: Value, result: Value) -> Ask {
    let mut assistant = assistant;
    assistant["role"] = json!("assistant");
    assistant["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": "get_weather", "arguments": "{}"}}]);
    chat(json!({"tools": [weather()], "messages": [
        {"role": "user", "content": "q"},
        assistant,
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]}))
}

fn oslo() -> String {
    call("get_weather", r#"{"city": "Oslo"}"#)
}

/// The tool-call deltas of the stream.
fn deltas(told: &Told) -> Vec<Value> {
    let calls = |event: &Value| event["choices"][0]["delta"]["tool_calls"].as_array().cloned();
    told.events("").iter().filter_map(calls).flatten().collect()
}

fn choice(told: &Told) -> Value {
    told.body()["choices"][0].clone()
}

/// The same answer asked for in the three dialects that know calls.
fn in_all_dialects(says: impl Fn(Ask) -> Ask) -> Vec<Ask> {
    let user = json!([{"role": "user", "content": "go"}]);
    vec![
        says(chat(json!({"messages": user, "tools": [weather()], "max_tokens": 16}))),
        says(messages(json!({
            "messages": user, "tools": [weather_of_messages()], "max_tokens": 16,
        }))),
        says(responses(json!({
            "input": "go", "tools": [weather_of_responses()], "max_output_tokens": 16,
        }))),
    ]
}

/// How an answer ended, in the words of its dialect.
fn ending(told: &Told) -> String {
    let body = told.body();
    let found = [
        &body["choices"][0]["finish_reason"],
        &body["stop_reason"],
        &body["incomplete_details"]["reason"],
        &body["status"],
    ];
    found.iter().find_map(|value| value.as_str()).unwrap().to_owned()
}

/// The ways in which the call of `oslo` may be cut, the whole of it left out.
fn cuts() -> Vec<String> {
    let whole = format!("Let me see.\n{}", oslo());
    let full = whole.len() - "</tool_call>".len();
    (1..full).map(|at| whole[..at].to_owned()).collect()
}

rows! {
    b1: "parallel calls all had index 0",
        vec![with_tool().says(&[oslo(), call("get_weather", r#"{"city": "Rom"}"#), oslo()].concat())],
        |told| {
            let deltas = deltas(&told[0]);
            let starts: Vec<&Value> =
                deltas.iter().filter(|delta| delta.get("id").is_some()).collect();
            let indexes: Vec<&Value> = starts.iter().map(|start| &start["index"]).collect();
            assert_eq!(indexes, [0, 1, 2]);
            let ids: BTreeSet<&str> =
                starts.iter().map(|start| start["id"].as_str().unwrap()).collect();
            assert_eq!(ids.len(), 3, "ids differ");
            let calls = choice(&told[0])["message"]["tool_calls"].clone();
            assert_eq!(calls[1]["function"]["arguments"], r#"{"city":"Rom"}"#);
        };

    b2: "the first delta of a call had no index or no id",
        vec![with_tool().says(&oslo())],
        |told| {
            let deltas = deltas(&told[0]);
            let first = &deltas[0];
            assert_eq!((&first["index"], &first["type"]), (&json!(0), &json!("function")));
            assert!(first["id"].as_str().is_some_and(|id| !id.is_empty()));
            assert_eq!(first["function"], json!({"name": "get_weather", "arguments": ""}));
            for later in &deltas[1..] {
                assert_eq!(later["index"], 0);
                assert!(later.get("id").is_none() && later["function"].get("name").is_none());
            }
        };

    b4: "`finish_reason` was `stop` with calls, also after text",
        vec![with_tool().says(&oslo()), with_tool().says(&format!("Let me see.\n{}", oslo()))],
        |told| {
            for one in told {
                assert_eq!(choice(one)["finish_reason"], "tool_calls");
                assert_eq!(one.events("").last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
            }
            assert_eq!(choice(&told[1])["message"]["content"], "Let me see.");
        };

    b5: "a call cut by the limit was told as a call",
        in_all_dialects(|ask| ask.cut_after("<tool_call>{\"name\": \"get_weather\", \"argu")),
        |told| {
            all_served(told);
            let endings: Vec<String> = told.iter().map(ending).collect();
            assert_eq!(endings, ["length", "max_tokens", "max_output_tokens"]);
            assert_eq!(told[2].body()["status"], "incomplete");
        };

    b6: "a call cut by the limit broke the stream",
        cuts().iter().flat_map(|text| in_all_dialects(|ask| ask.cut_after(text))).collect(),
        |told| {
            // That both forms are well-formed and one answer was looked at already.
            all_served(told);
            for one in told {
                assert!(["length", "max_tokens", "max_output_tokens"].contains(&&*ending(one)));
            }
        };

    b9: "the arguments of a call came in one lump",
        vec![with_tool().says(&call("get_weather", &json!({"city": "x".repeat(2000)}).to_string()))],
        |told| {
            let deltas = deltas(&told[0]);
            let parts: Vec<&str> =
                deltas.iter().map(|d| d["function"]["arguments"].as_str().unwrap()).collect();
            assert!(parts.len() > 5, "{} parts", parts.len());
            let joined: Value = serde_json::from_str(&parts.concat()).unwrap();
            assert_eq!(joined["city"].as_str().unwrap().len(), 2000);
        };

    b10: "tags of calls and reasoning leaked into the content",
        vec![with_tool().says(&format!("<think>\nhm\n</think>\n\nLet me see.\n{}\n", oslo()))],
        |told| {
            let message = choice(&told[0])["message"].clone();
            assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Let me see."), &json!("hm")));
            for tag in ["<think", "think>", "<tool", "tool_call>"] {
                assert!(!told[0].stream.text.contains(tag), "{tag}");
            }
        };

    b11: "a call within reasoning was swallowed",
        vec![with_tool().says(&format!("<think>\nI need the weather. {}", oslo()))],
        |told| {
            let choice = choice(&told[0]);
            assert_eq!(choice["finish_reason"], "tool_calls");
            assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "get_weather");
            assert_eq!(choice["message"]["reasoning_content"], "I need the weather.");
        };

    b12: "an unclosed call was dropped in silence",
        vec![
            with_tool().says("<tool_call>"),
            with_tool().says("<tool_call>{\"name\": \"get_wea"),
            with_tool().cut_after("<tool_call>"),
        ],
        |told| {
            all_served(told);
            for one in &told[..2] {
                let choice = choice(one);
                let shown = choice["message"]["content"].as_str().unwrap_or_default();
                assert!(!shown.is_empty(), "never an empty success");
            }
            assert_eq!(choice(&told[2])["finish_reason"], "length");
        };

    b14: "an assistant message with calls and no content was refused",
        [json!({"content": null}), json!({"content": ""}), json!({}), json!({"content": [], "id": "m"})]
            .map(|assistant| called(assistant, json!("ok")))
            .into(),
        |told| same_tokens(told);

    b15: "a tool's result as a list of parts was lost",
        [
            json!("ab"),
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            json!([{"type": "text", "text": "ab", "cache_control": {"type": "ephemeral"}}]),
        ]
        .map(|result| called(json!({"content": null}), result))
        .into(),
        |told| {
            same_tokens(told);
            assert!(told[0].text().contains("ab"));
        };

    b18: "`reasoning` and `reasoning_content` were not both understood",
        {
            let with = |key: &str| {
                let mut assistant = json!({"role": "assistant", "content": "a"});
                assistant[key] = json!("my plan");
                let user = json!({"role": "user", "content": "q"});
                chat(json!({"messages": [user, assistant, user]})).on(strict())
            };
            vec![
                with("reasoning_content"),
                with("reasoning"),
                ask(json!({})).says("<think>hm</think>x"),
            ]
        },
        |told| {
            same_tokens(&told[..2]);
            assert!(told[0].text().contains("<think>\nmy plan\n</think>"));
            assert_eq!(choice(&told[2])["message"]["reasoning_content"], "hm");
        };

    b19: "usage was missing, or in every chunk though nobody asked",
        vec![ask(json!({"stream_options": {"include_usage": true}})), ask(json!({}))],
        |told| {
            let chunks = told[0].events("");
            let (last, before) = chunks.split_last().unwrap();
            assert!(before.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
            assert_eq!(last["choices"], json!([]));
            assert_eq!(last["usage"]["prompt_tokens"], told[0].tokens().len());
            assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], CACHED);
            assert!(!told[1].stream.text.contains("\"usage\""), "{}", told[1].stream.text);
            assert!(told[1].body()["usage"].is_object(), "a whole answer always counts");
        };

    b20: "a second or late system message was refused",
        {
            let turns = [
                json!({"role": "system", "content": "be brief"}),
                json!({"role": "user", "content": "a"}),
                json!({"role": "assistant", "content": "b"}),
                json!({"role": "developer", "content": "be long"}),
                json!({"role": "user", "content": "c"}),
            ];
            let turns_to = |n: usize| json!({"messages": turns[..n]});
            [tiny(), strict()].into_iter()
                .flat_map(|model| [2, 5].map(|n| chat(turns_to(n)).on(model.clone())))
                .collect()
        },
        |told| {
            all_served(told);
            for pair in told.chunks(2) {
                // The beginning of the shorter one's answer is the head of it in the longer one.
                assert!(pair[1].tokens().starts_with(pair[0].tokens()));
                assert!(pair[1].text().contains("be long"));
            }
        };

    b21: "a stop string over a token border leaked, or was never seen",
        {
            let stopped = |batch| {
                ask(json!({"stop": ["beta gamma"]})).script(Script::Say {
                    text: "say alpha beta gamma delta".into(),
                    batch,
                    reason: FinishReason::Stop(Token(2)),
                })
            };
            vec![stopped(1), stopped(3), stopped(1000)]
        },
        |told| for one in told {
            assert_eq!(choice(one)["message"]["content"], "say alpha ");
            assert_eq!(choice(one)["finish_reason"], "stop");
        };

    b23: "a character cut between tokens became U+FFFD",
        vec![ask(json!({})).says("🦀世界 \u{10ffff}é"), ask(json!({})).cut_after("🦀世界")],
        |told| {
            assert_eq!(choice(&told[0])["message"]["content"], "🦀世界 \u{10ffff}é");
            for one in told {
                // Escaped halves of characters would not have been read as JSON.
                assert!(!one.stream.text.contains('\u{fffd}') && !one.unary.text.contains('\u{fffd}'));
            }
        };

    b25: "`parallel_tool_calls: false` was ignored",
        vec![ask(json!({"tools": [weather()], "parallel_tool_calls": false}))
            .says(&[oslo(), oslo()].concat())],
        |told| {
            assert_eq!(choice(&told[0])["message"]["tool_calls"].as_array().unwrap().len(), 1);
            assert_eq!(choice(&told[0])["finish_reason"], "tool_calls");
        };

    b26: "one odd keyword in one tool's schema failed every request",
        {
            let odd = json!({
                "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
                "properties": {
                    "a": {"type": "string", "pattern": "\\S", "maxLength": 65536},
                    "b": {"type": "object", "properties": {"c": {"pattern": "^a$", "format": "x"}}},
                    "d": {"pattern": "(?<=("}, "e": {"$ref": "#/nowhere"}, "f": {"type": "widget"},
                },
                "required": ["z"], "additionalProperties": {"not": {}},
            });
            let tool = |i: usize| json!({"type": "function", "function": {
                "name": format!("tool_{i}"), "parameters": odd,
            }});
            let tools: Vec<Value> = (0..60).map(tool).collect();
            vec![
                ask(json!({"tools": tools})).context(1 << 16),
                ask(json!({"tools": [{"type": "function", "function": {"name": "w", "parameters": null}}]})),
            ]
        },
        |told| all_served(told);

    b27: "a constraint that cannot be kept was dropped in silence",
        vec![ask(json!({"response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "strict": true,
            "schema": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(("}},
                "required": ["a"], "additionalProperties": false},
        }}}))],
        |told| {
            assert_eq!(told[0].status(), 400);
            let error = told[0].body()["error"].clone();
            assert!(error["param"].as_str().unwrap().starts_with("response_format"), "{error}");
        };

    b29: "`max_tokens` was a demand, not a bound",
        vec![
            ask(json!({"max_completion_tokens": 65_535})),
            ask(json!({"max_tokens": 65_535})),
            ask(json!({})),
        ],
        |told| {
            all_served(told);
            for one in told {
                assert_eq!(one.prompt().limits.max_tokens as usize, 4096 - one.tokens().len());
            }
        };
}
