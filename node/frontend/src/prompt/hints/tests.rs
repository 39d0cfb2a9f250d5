use crate::chat;
use crate::nvext::outcome::Outcome;
use crate::prompt::cache::PrefixCache;
use crate::prompt::client::Client;
use crate::prompt::session::Session;
use crate::prompt::{Prepared, Who, prepare};
use crate::testing::{key, served};
use protocol::id::{RequestId, SessionId, TenantId};
use protocol::time::Span;
use serde_json::{Value, json};

fn prepared(nvext: &Value, session: Session) -> Prepared {
    let body =
        json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "nvext": nvext});
    let ask = chat::request::read(body.to_string().as_bytes()).unwrap();
    let who = Who { id: RequestId(1), tenant: TenantId::local(), session, seed: 0, priority: 0 };
    prepare(&ask, who, &served(1000), &key(1), &PrefixCache::new(0), &Client::stays()).unwrap()
}

/// The outcomes of hints, as `hint outcome`.
fn outcomes(prepared: &Prepared) -> Vec<String> {
    let line = |outcome: &Outcome| {
        let json = outcome.to_json();
        let text = |key: &str| json[key].as_str().unwrap().to_owned();
        text("hint") + " " + &text("outcome")
    };
    prepared.outcomes.iter().map(line).collect()
}

fn named() -> Session {
    Session { id: SessionId::new("s"), parent: SessionId::new("p"), ..Session::default() }
}

#[test]
fn hints_are_typed_and_answered() {
    let prepared = prepared(
        &json!({
            "agent_hints": {
                "priority": -3, "osl": 40, "strict_priority": 2, "speculative_prefill": false,
            },
            "session_final": true,
        }),
        named(),
    );
    let hints = &prepared.prompt.hints;
    assert_eq!((hints.priority, hints.osl, hints.strict_priority), (-3, Some(40), 2));
    assert!(hints.session_final);
    assert_eq!(hints.parent, SessionId::new("p"));
    assert_eq!(
        outcomes(&prepared),
        [
            "nvext.agent_hints.priority accepted",
            "nvext.agent_hints.strict_priority accepted",
            "nvext.agent_hints.osl accepted",
            "nvext.agent_hints.speculative_prefill accepted",
            "nvext.session_final accepted",
        ]
    );
}

#[test]
fn what_is_not_followed_says_why() {
    let prepared = prepared(
        &json!({
            "agent_hints": {"osl": 500, "latency_sensitivity": 1.6, "speculative_prefill": true},
            "cache_control": {"type": "ephemeral", "ttl": "2h"},
            "session_final": true,
            "tool_latency_ms": 2500,
        }),
        Session::default(),
    );
    let hints = &prepared.prompt.hints;
    assert_eq!((hints.priority, hints.osl), (2, Some(50)));
    assert_eq!(hints.tool_latency, Some(Span::millis(2500)));
    assert!(!hints.session_final, "there is no session to end");
    assert_eq!(hints.claims[0].claim.ttl, Some(Span::secs(3600)));
    assert_eq!(
        outcomes(&prepared),
        [
            "nvext.agent_hints.latency_sensitivity clipped",
            "nvext.agent_hints.osl clipped",
            "nvext.agent_hints.speculative_prefill accepted",
            "nvext.tool_latency_ms rejected",
            "nvext.session_final rejected",
            "nvext.cache_control clipped",
        ]
    );
    let told = prepared.outcomes.iter().filter(|outcome| outcome.is_news());
    assert!(told.clone().all(|outcome| outcome.to_json()["reason"].is_string()));
    assert_eq!(told.count(), 5);
}

#[test]
fn the_old_name_of_priority_counts_only_alone() {
    let both = json!({"agent_hints": {"priority": 1, "latency_sensitivity": 9.0}});
    let prepared = prepared(&both, Session::default());
    assert_eq!(prepared.prompt.hints.priority, 1);
    assert_eq!(outcomes(&prepared)[1], "nvext.agent_hints.latency_sensitivity rejected");
}

#[test]
fn retention_is_clipped_to_the_prompt() {
    let ranges = json!({"retention": [
        {"start": 0, "end": 4, "priority": 7, "duration_ms": 1500},
        {"start": 2, "end": 500},
        {"start": 300},
    ]});
    let prepared = prepared(&ranges, Session::default());
    let length = prepared.shape.prompt_tokens;
    let claims = &prepared.prompt.hints.claims;
    let ends: Vec<_> = claims.iter().map(|claim| (claim.start, claim.end)).collect();
    assert_eq!(ends, [(0, 4), (2, length)], "a range past the end claims nothing");
    assert_eq!((claims[0].claim.priority, claims[0].claim.ttl), (7, Some(Span::millis(1500))));
    assert_eq!(
        outcomes(&prepared),
        [
            "nvext.retention[0] accepted",
            "nvext.retention[1] clipped",
            "nvext.retention[2] rejected"
        ]
    );
}
