use super::*;
use std::path::PathBuf;

fn example() -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/dynamo-node.toml");
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn the_example_parses_and_states_the_defaults() {
    let example = parse(&example(), Path::new("example")).unwrap();
    let mut default = Config::default();
    default.node.data_dir.clone_from(&example.node.data_dir);
    assert_eq!(format!("{example:?}"), format!("{default:?}"));
    example.check().unwrap();
}

#[test]
fn the_example_documents_every_key() {
    // Every field of the Debug form stands in the example, be it commented out.
    let text = example();
    let debug = format!("{:?}", Config::default());
    for word in debug.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        let is_key = debug.contains(&format!("{word}: "));
        if is_key && !word.is_empty() {
            assert!(
                text.contains(&format!("{word} ="))
                    || text.contains(&format!("[{word}]"))
                    || text.contains(&format!(".{word}]")),
                "{word} is not documented"
            );
        }
    }
}

#[test]
fn unknown_keys_name_the_nearest_and_the_line() {
    let fault = parse("[http]\nlisten = \"127.0.0.1:1\"\ninsecur = true\n", Path::new("f.toml"));
    let text = fault.unwrap_err().to_string();
    assert!(text.contains("f.toml line 3"), "{text}");
    assert!(text.contains("did you mean `insecure`"), "{text}");
}

#[test]
fn ill_typed_values_name_the_line() {
    let text = parse("[engine]\nthreads = \"two\"\n", Path::new("f.toml")).unwrap_err().to_string();
    assert!(text.contains("line 2") && text.contains("invalid type"), "{text}");
}

#[test]
fn checks_refuse_what_cannot_work() {
    let refuses = |change: fn(&mut Config), word: &str| {
        let mut config = Config::default();
        change(&mut config);
        let text = config.check().unwrap_err().to_string();
        assert!(text.contains(word) && text.contains("help:"), "{text}");
    };
    refuses(|c| c.http.listen = SocketAddr::from(([0, 0, 0, 0], 80)), "API keys");
    refuses(|c| c.cluster.listen = SocketAddr::from(([0, 0, 0, 0], 80)), "reach this node");
    refuses(|c| c.engine.kind = "vlm".into(), "unknown engine");
    refuses(|c| c.placement.policy = "kvv".into(), "kvv");
    refuses(|c| c.gossip.suspect_ms = 10, "gossip");
    refuses(|c| c.engine.format = "hermit".into(), "qwen-coder");
    refuses(|c| c.engine.threads = 0, "threads");
    refuses(|c| c.engine.mock.speedup = 0.0, "speedup");
    refuses(|c| c.engine.mock.block_tokens = 24, "block_tokens");
    refuses(|c| c.engine.mock.max_batched_tokens = 8, "max_batched_tokens");
    refuses(|c| c.engine.mock.timing.jitter = -1.0, "jitter");
    refuses(|c| c.log.format = "xml".into(), "xml");
}
