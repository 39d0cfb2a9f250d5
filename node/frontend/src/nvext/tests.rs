use super::*;

fn read(value: Value) -> Result<NvExt, ApiError> {
    NvExt::read(value.as_object().cloned())
}

#[test]
fn unknown_keys_name_the_nearest() {
    let cases = [
        (
            json!({"agent_hint": {}}),
            "nvext: `agent_hint` is not known; did you mean `agent_hints`?",
        ),
        (json!({"agent_hints": {"priorty": 1}}), "did you mean `priority`?"),
        (json!({"extra_fields": ["timings"]}), "did you mean `timing`?"),
        (json!({"retention": [{"start": 0, "duration": 5}]}), "did you mean `duration_ms`?"),
    ];
    for (value, expected) in cases {
        let message = read(value).unwrap_err().message;
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn ill_typed_values_name_their_path() {
    let error = read(json!({"agent_hints": {"osl": "many"}})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("nvext.agent_hints.osl"));
}

#[test]
fn only_what_was_asked_is_told() {
    assert_eq!(Told::default().envelope(Extra::default()), None);
    let extra = Extra { route: true, ..Extra::default() };
    let told = Told::default().envelope(extra).unwrap();
    assert!(told.get("route").is_some() && told.get("timing").is_none());
}

#[test]
fn token_ids_come_under_the_name_that_was_asked() {
    let both = ["completion_token_ids", "prompt_token_ids"];
    for (asked, told) in [
        ("prompt_token_ids", &both[1..]),
        ("completion_token_ids", &both[..1]),
        ("token_ids", &both[..]),
    ] {
        let extra = read(json!({"extra_fields": [asked]})).unwrap().extra;
        let envelope = Told::default().envelope(extra).unwrap();
        let mut keys: Vec<_> = envelope.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, told, "{asked}");
    }
}
