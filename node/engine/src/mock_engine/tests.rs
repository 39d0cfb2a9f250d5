use super::*;
use std::path::Path;

#[test]
fn drawn_words_are_words() {
    let builtin = Model::builtin().unwrap();
    let found = words(builtin.tokenizer());
    let text = builtin.tokenizer().decode(&found);
    assert_eq!(text, format!("{}     ", ('a'..='z').collect::<String>()));
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tiny-qwen3");
    let tiny = Model::open(&tiny).unwrap();
    let found = words(tiny.tokenizer());
    let plain = |token: &Token| !tiny.tokenizer().is_special(*token);
    assert!(found.len() > 20 && found.iter().all(plain), "{}", found.len());
}

#[test]
fn useless_settings_are_told() {
    let model = Arc::new(Model::builtin().unwrap());
    let start = |change: fn(&mut MockConfig), dram: usize| {
        let mut config = MockConfig::new(EngineId(0), "m", Instant::now());
        change(&mut config);
        let dram = Pool::new(dram, 1).unwrap();
        let (events, _reader) = tokio::sync::mpsc::channel(1);
        MockEngine::start(&model, dram, &config, events).unwrap_err().to_string()
    };
    assert_eq!(
        start(|_| {}, 4096),
        "engine setting dram slots: hold 4096 bytes, a mock block has 16384"
    );
    assert_eq!(
        start(|config| config.timing.speedup_ratio = 0.0, 16384),
        "engine setting engine.mock: timing: speedup_ratio is 0, must be above 0"
    );
}
