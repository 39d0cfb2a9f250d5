//! Section D: transport and errors.

use super::*;
use protocol::prompt::Refusal;

/// A good request of each dialect that knows conversations.
fn good() -> [Ask; 3] {
    let user = json!([{"role": "user", "content": "hi"}]);
    [
        chat(json!({ "messages": user })),
        messages(json!({ "messages": user })),
        responses(json!({"input": "hi"})),
    ]
}

rows! {
    d4: "an overload after the 200 was taken for success",
        {
            let fail = Script::Fail("so".into(), Refusal::Failed("the worker died".into()));
            good().into_iter().map(|ask| ask.script(fail.clone())).collect()
        },
        |told| {
            for one in told {
                assert_eq!(one.stream.status, 200);
                assert_eq!(one.status(), 500, "a whole answer can still say so");
            }
            let last = |told: &Told| {
                let mut events = events(&told.stream.text);
                events.retain(|(_, data)| data != "[DONE]");
                let (name, data) = events.pop().unwrap();
                (name, serde_json::from_str::<Value>(&data).unwrap())
            };
            let (name, data) = last(&told[0]);
            assert_eq!((name.as_str(), &data["error"]["type"]), ("", &json!("server_error")));
            let (name, data) = last(&told[1]);
            assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &json!("overloaded_error")));
            let (name, data) = last(&told[2]);
            assert_eq!(name, "response.failed");
            assert_eq!(data["response"]["error"]["code"], "server_error");
        };

    d5: "errors had the body of another API, a number for a code, or came within a 200",
        {
            let wrong = json!([{"role": "king", "content": "x"}]);
            let long = "a b ".repeat(30);
            let long_chat = json!([{"role": "user", "content": long}]);
            vec![
                chat(json!({ "messages": wrong })),
                responses(json!({ "input": wrong })),
                messages(json!({ "messages": wrong })),
                chat(json!({ "messages": long_chat })).context(16),
                responses(json!({ "input": long })).context(16),
                messages(json!({ "messages": long_chat })).context(16),
            ]
        },
        |told| for (i, one) in told.iter().enumerate() {
            assert_eq!((one.status(), one.stream.status.as_u16()), (400, 400));
            assert_eq!(one.stream.headers["content-type"], "application/json");
            let body = one.body();
            let error = &body["error"];
            assert_eq!(error["type"], "invalid_request_error");
            match i % 3 {
                2 => {
                    assert_eq!(body["type"], "error");
                    assert!(error.get("code").is_none() && body["request_id"].is_string());
                }
                _ => {
                    let code = if i < 3 { Value::Null } else { json!("context_length_exceeded") };
                    assert_eq!(error["code"], code);
                    let fields = ["messages[0].role", "input[0].role", "", "messages", "input"];
                    assert_eq!(error["param"], fields[i]);
                    assert!(body.get("type").is_none());
                }
            }
        };
}
