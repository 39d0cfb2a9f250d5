//! The mock engine on real nodes: without a model, with scripts, with real bytes between nodes.

use crate::kit::{Cluster, binary, eventually, http};
use crate::prompts::text;
use crate::stream::{Stream, body};
use load::client::{CallError, Client, Dialect};
use load::fleet::{Fleet, FleetOptions};
use load::talk::{Conversation, Preamble, Tool};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

const FAST: &str = "[dram]\nmib = 64\n[engine.mock]\nspeedup = 20.0\n";
const BLOCK: u64 = 16;

/// Nodes with `--engine mock` and nothing else on the command line.
async fn cluster(nodes: u32, config: &str) -> Cluster {
    let mut options = FleetOptions::new(binary(), nodes);
    options.config = config.into();
    options.per_node = vec![Default::default(); nodes as usize];
    for node in &mut options.per_node {
        node.args = vec!["--engine".into(), "mock".into()];
    }
    let fleet = Fleet::start(options).await.unwrap();
    let client = Client::new(Duration::from_secs(60)).unwrap();
    let model = client.models(fleet.node(0).http()).await.unwrap().remove(0);
    Cluster { fleet, client, http: http(), model }
}

/// The text of a streamed chat answer, piece by piece.
fn pieces(events: &[String]) -> Vec<String> {
    let content = |data: &String| {
        let event: Value = serde_json::from_str(data).ok()?;
        let text = event["choices"][0]["delta"]["content"].as_str()?.to_owned();
        (!text.is_empty()).then_some(text)
    };
    events.iter().filter_map(content).collect()
}

#[tokio::test]
async fn it_starts_without_a_model_and_streams() {
    let cluster = cluster(1, FAST).await;
    assert_eq!(cluster.model, "builtin");
    let status = cluster.get(0, "/admin/v1/status").await;
    assert_eq!(status["nodes"][0]["engines"][0]["name"], "mock/0", "{status}");
    let body = body(&cluster, &text(1, 3000), 40, true);
    let stream = Stream::open(&cluster, 0, Dialect::Chat, &body).await;
    let first = pieces(&stream.rest().await);
    let said = first.concat();
    assert!(first.len() > 20 && said.chars().all(|c| c == ' ' || c.is_ascii_lowercase()), "{said}");
    // The same again, mostly from the pool, with the same words.
    let run = cluster.answer(&cluster.call(0, &text(1, 3000))).await;
    assert!(run.cached.gpu * 10 >= run.prompt_tokens * 9, "{run:?}");
    assert!(run.text.starts_with(&said) || said.starts_with(&run.text), "{said:?} {run:?}");
    // Without a limit it ends by itself.
    let mut call = cluster.call(0, "hello");
    call.max_tokens = 1000;
    let run = cluster.answer(&call).await;
    assert_eq!((run.completion_tokens, run.finish.as_str()), (65, "stop"), "{run:?}");
}

/// Agents that begin together send equal prompts together, and from several nodes.
#[tokio::test]
async fn equal_cold_prompts_at_once_are_computed_once() {
    const CALLS: usize = 32;
    let cluster = cluster(2, FAST).await;
    for (round, entries) in [1, 2].into_iter().enumerate() {
        let text = text(100 + round as u64, 6000);
        let calls: Vec<_> = (0..CALLS).map(|n| cluster.call(n % entries, &text)).collect();
        let runs = futures::future::join_all(calls.iter().map(|call| cluster.answer(call))).await;
        let prompt = runs[0].prompt_tokens;
        let computed: u64 = runs.iter().map(|run| run.computed).sum();
        let nodes: std::collections::BTreeSet<_> = runs.iter().map(|r| &r.serving_node).collect();
        let most = nodes.len() as u64 * prompt + CALLS as u64 * BLOCK;
        assert!(computed <= most, "{computed} of {prompt} each, on {} nodes", nodes.len());
    }
}

#[tokio::test]
async fn those_who_wait_for_another_hear_that_the_node_stops() {
    const SLOW: &str = "[dram]\nmib = 64\n[engine.mock]\nspeedup = 0.01\n";
    let mut cluster = cluster(1, SLOW).await;
    let (text, client) = (text(7, 20_000), cluster.client.clone());
    let calls: Vec<_> = (0..5).map(|_| cluster.call(0, &text)).collect();
    let calls = calls.into_iter().map(|call| {
        let client = client.clone();
        tokio::spawn(async move { client.call(&call).await })
    });
    let running: Vec<_> = calls.collect();
    eventually("four wait for the fifth", async || {
        (cluster.metrics(0).await["dynamo_node_prefill_waiting"] == 4.0).then_some(())
    })
    .await;
    cluster.fleet.node(0).terminate().unwrap();
    for call in running {
        let outcome = call.await.unwrap();
        let error = outcome.error.expect("it was not answered");
        let told = matches!(error, CallError::Refused { status: 503, .. } | CallError::Failed(_));
        assert!(told, "{error:?}");
    }
    let exit = cluster.fleet.node_mut(0).wait_exit(Duration::from_secs(20)).await.unwrap();
    assert!(exit.success(), "{exit}");
}

#[tokio::test]
async fn a_script_plays_raw_output_with_split_markers() {
    let call = json!({"name": "look", "arguments": {"at": "the sea"}}).to_string();
    let (head, tail) = call.split_at(9);
    let chunks = ["I ", "look. <tool", "_call>", head, tail, "</tool_ca", "ll>"];
    let script = json!({"prompt_contains": "sea", "turn": 1, "chunks": chunks}).to_string();
    let second = json!({"chunks": ["Something ", "else."]}).to_string();
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    write!(file, "// a tool call, then plain text\n{script}\n{second}\n").unwrap();
    let config = format!("{FAST}script = {:?}\n", file.path());
    let cluster = cluster(1, &config).await;
    let tool = Tool {
        name: "look".into(),
        description: "Looks.".into(),
        parameters: json!({"type": "object", "properties": {"at": {"type": "string"}}}),
    };
    for dialect in [Dialect::Chat, Dialect::Messages] {
        let mut talk = Conversation::question("What is in the sea?");
        let system = "Be brief.".into();
        talk.preamble = Arc::new(Preamble { system, tools: vec![tool.clone()] });
        let mut call = cluster.conversation(0, dialect, talk);
        call.max_tokens = 500;
        let run = cluster.answer(&call).await;
        assert_eq!(run.text.trim_end(), "I look.", "{run:?}");
        assert_eq!(run.calls.len(), 1, "{run:?}");
        assert_eq!(run.calls[0].name, "look");
        let arguments: Value = serde_json::from_str(&run.calls[0].arguments).unwrap();
        assert_eq!(arguments, json!({"at": "the sea"}));
    }
    let body = body(&cluster, "hello", 100, true);
    let stream = Stream::open(&cluster, 0, Dialect::Chat, &body).await;
    assert_eq!(pieces(&stream.rest().await).concat(), "Something else.");
}

#[tokio::test]
async fn the_prefix_of_another_node_arrives_and_gives_the_same_answer() {
    let config = "[dram]\nmib = 64\n\
                  [placement]\nassume_prefill_tokens_s = 100.0\nassume_bandwidth_mb_s = 1000.0\n";
    let cluster = cluster(2, config).await;
    let (prompt, salt) = (text(3, 5000), "shared");
    let cold = cluster.answer(&cluster.bound(0, &prompt, salt)).await;
    assert_eq!(cold.cached.sum(), 0);
    cluster.would_fetch((1, 1, 0), (&prompt, salt), 0.97).await;
    let fetched = cluster.answer(&cluster.bound(1, &prompt, salt)).await;
    let recomputed = cluster.answer(&cluster.bound(1, &prompt, "another")).await;
    let whole = (fetched.prompt_tokens - 1) / BLOCK * BLOCK;
    assert!(fetched.cached.peer * 100 >= whole * 95, "{} of {whole}", fetched.cached.peer);
    assert_eq!(recomputed.cached.sum(), 0);
    assert_eq!(fetched.token_ids, cold.token_ids);
    assert_eq!(recomputed.token_ids, cold.token_ids);
}

#[tokio::test]
async fn a_broken_script_is_told_with_a_remedy() {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(file, "[[answer]]\nchunk = [\"x\"]\n").unwrap();
    let mut options = FleetOptions::new(binary(), 1);
    options.config =
        format!("[engine]\nkind = \"mock\"\n[engine.mock]\nscript = {:?}\n", file.path());
    let error = Fleet::start(options).await.unwrap_err().to_string();
    assert!(error.contains("unknown field `chunk`"), "{error}");
}
