use super::*;

fn read(value: Value) -> Result<NvExt, ApiError> {
    NvExt::read(value.as_object().cloned())
}

#[test]
fn all_five_hints_are_typed() {
    let nvext = read(json!({"agent_hints": {
        "priority": -3, "osl": 120, "strict_priority": 2, "speculative_prefill": true,
        "latency_sensitivity": 9.0
    }}))
    .unwrap();
    let hints = nvext.hints(100, None, &TenantId::local());
    assert_eq!(hints.priority, -3, "the alias only counts when priority is absent");
    assert_eq!((hints.osl, hints.strict_priority), (Some(120), 2));
    assert!(hints.speculative_prefill);
    let old = read(json!({"agent_hints": {"latency_sensitivity": 1.6}})).unwrap();
    assert_eq!(old.hints(1, None, &TenantId::local()).priority, 2);
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
fn retention_is_clipped_to_the_prompt() {
    let nvext = read(json!({"retention": [
        {"start": 0, "end": 500, "priority": 7, "duration_ms": 1500}, {"start": 300}
    ]}))
    .unwrap();
    let claims = nvext.hints(100, None, &TenantId::local()).claims;
    assert_eq!(claims.len(), 1, "a range past the end claims nothing");
    assert_eq!((claims[0].start, claims[0].end), (0, 100));
    assert_eq!((claims[0].claim.priority, claims[0].claim.ttl), (7, Some(Span::millis(1500))));
}

#[test]
fn only_what_was_asked_is_told() {
    assert_eq!(Told::default().envelope(Extra::default()), None);
    let extra = Extra { route: true, ..Extra::default() };
    let told = Told::default().envelope(extra).unwrap();
    assert!(told.get("route").is_some() && told.get("timing").is_none());
}
