use super::*;

const REQUESTS: &str = r#"{"timestamp": 500, "input_length": 1030, "output_length": 7, "hash_ids": [1, 2, 3]}
{"timestamp": 0, "input_length": 1100, "output_length": 9, "hash_ids": [1, 2, 4], "session_id": "a", "stop": "tool_use"}
"#;
const SESSIONS: &str = r#"{"session":"s","block_size":64,"tool_tokens":5,"reqs":[{"t":0.0,"i":130,"o":3,"h":[[1,2],[9,1]]},{"t":4.5,"n":1,"sub":[]}]}"#;

#[test]
fn both_formats_are_read() {
    let trace = Trace::parse(REQUESTS).unwrap();
    assert_eq!(trace.len(), 2);
    assert_eq!(trace.requests[0].session.as_deref(), Some("a"), "sorted by time");
    let trace = Trace::parse(SESSIONS).unwrap();
    assert_eq!(trace.requests[0].pieces, [(1, 1), (1, 2), (1, 9)]);
    assert_eq!(trace.len(), 1, "sub-agents without text are left out");
}

#[test]
fn equal_numbers_give_equal_tokens_and_lengths_shrink() {
    let trace = Trace::parse(REQUESTS).unwrap();
    let [a, b] = [0, 1].map(|at| tokens(&trace.requests[at], 1));
    assert_eq!((a.len(), b.len()), (1100, 1030));
    assert_eq!(a[..1024], b[..1024]);
    assert_ne!(a[1024..1030], b[1024..1030]);
    assert_eq!(tokens(&trace.requests[0], 10).len(), 110);
}

#[test]
fn a_wrong_line_is_named() {
    let error = Trace::parse("{\"timestamp\": 1}\n").unwrap_err();
    assert_eq!(error.line, 1);
    assert!(
        Trace::parse(&format!("{SESSIONS}\nnonsense")).unwrap_err().to_string().contains("line 2")
    );
    for (text, word) in [
        ("\n\n", "no request"),
        (r#"{"timestamp":-5,"input_length":1,"output_length":1,"hash_ids":[]}"#, "time"),
        (r#"{"timestamp":0,"input_length":4294967295,"output_length":1,"hash_ids":[]}"#, "length"),
        (r#"{"session":"a","block_size":0,"reqs":[]}"#, "block_size"),
        (r#"{"session":"a","block_size":4294967295,"reqs":[]}"#, "block_size"),
    ] {
        let error = Trace::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}
