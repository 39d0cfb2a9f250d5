use super::*;
use protocol::time::Span;

#[test]
fn each_refusal_has_its_status_in_each_dialect() {
    let cases = [
        (Refusal::Busy { retry_after: Span::millis(1200) }, 503, 529, Some("2")),
        (Refusal::NoTarget { model: "m".into() }, 503, 503, Some("1")),
        (Refusal::Gone, 503, 503, Some("1")),
        (Refusal::TooLong { tokens: 9, limit: 7 }, 400, 400, None),
        (Refusal::Failed("x".into()), 500, 500, None),
    ];
    for (refusal, openai, anthropic, retry) in cases {
        let error = ApiError::from(refusal);
        for (dialect, status) in [(Dialect::OpenAi, openai), (Dialect::Anthropic, anthropic)] {
            let response = error.response(dialect, "r");
            assert_eq!(response.status().as_u16(), status, "{error:?} {dialect:?}");
            let header = response.headers().get("retry-after").map(|v| v.to_str().unwrap());
            assert_eq!(header, retry);
        }
    }
}

#[test]
fn a_lost_node_is_nobodys_mistake_and_worth_another_try() {
    let lost = ApiError::from(Refusal::Gone);
    assert!(lost.message.contains("went away") && lost.message.ends_with("try again"));
    // A stream that has begun cannot change its status: it tells of the same as of a failure.
    let failed = ApiError::from(Refusal::Failed("x".into()));
    let form = |error: &ApiError, dialect, streaming| {
        let mut body = error.body(dialect, "r", streaming);
        body["error"]["message"] = Value::Null;
        body
    };
    for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
        assert_eq!(form(&lost, dialect, true), form(&failed, dialect, true));
    }
    assert_eq!(lost.response_code(), failed.response_code());
    let unary = form(&lost, Dialect::Anthropic, false);
    assert_eq!(unary["error"]["type"], "overloaded_error");
}

#[test]
fn a_long_prompt_is_refused_in_the_words_that_harnesses_know() {
    let error = ApiError::from(Refusal::TooLong { tokens: 210_000, limit: 199_999 });
    let anthropic = error.body(Dialect::Anthropic, "r", false);
    assert_eq!(anthropic["error"]["type"], "invalid_request_error");
    assert_eq!(anthropic["error"]["message"], "prompt is too long: 210000 tokens > 199999 maximum");
    let openai = error.body(Dialect::OpenAi, "r", false);
    assert_eq!(openai["error"]["code"], "context_length_exceeded");
}
