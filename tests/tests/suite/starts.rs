//! Starting that must not succeed: each attempt ends with one readable line and one of help.

use crate::command::{Bench, copy_folder, free_ports, ports};
use crate::kit::{Cluster, binary, eventually, http};
use crate::models::tiny;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn model() -> String {
    format!("--model {}", tiny().display())
}

#[test]
fn ports_in_use() {
    let bench = Bench::new();
    let (_, cluster) = ports();
    let start = |name: &str, http: u16, cluster: u16| {
        bench.run(&format!(
            "start {} --data-dir {name} --http 127.0.0.1:{http} --listen 127.0.0.1:{cluster}",
            model()
        ))
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    start("http", port, cluster).refused_with(1, &[&port.to_string(), "in use"]);
    // The node takes the next port too, which another program may just have as well.
    let refused = |name: &str, port: u16| {
        let ended = start(name, 0, port);
        ended.refused_with(1, &["in use"]);
        let named = [port, port + 1].iter().any(|port| ended.stderr.contains(&port.to_string()));
        assert!(named, "{ended:?}");
    };
    refused("tcp", port);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    refused("udp", taken.local_addr().unwrap().port());
    let nowhere =
        format!("start {} --data-dir nowhere --http 192.0.2.1:1 --insecure-http", model());
    bench.run(&nowhere).refused_with(1, &["192.0.2.1:1"]);
}

#[tokio::test]
async fn two_processes_on_one_data_folder() {
    let cluster = Cluster::plain(&tiny(), 1).await;
    let bench = Bench::new();
    let folder = cluster.fleet.node(0).data_dir();
    let second = format!("start {} --data-dir {} {}", model(), folder.display(), free_ports());
    bench
        .run(&second)
        .refused_with(1, &["in use by another dynamo-node", &folder.display().to_string()]);
    cluster.answer(&cluster.call(0, "Hello")).await;
}

/// A process that ends with its test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_its_lines_and_nothing_else() {
    let bench = Bench::new();
    let (port, cluster) = ports();
    let start = format!(
        "start --engine none --data-dir d --http 127.0.0.1:{port} --listen 127.0.0.1:{cluster}"
    );
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(binary());
    command.args(start.split_whitespace()).current_dir(bench.path("")).stdin(Stdio::null());
    let mut node = Reaped(command.stdout(Stdio::null()).stderr(full).spawn().unwrap());
    eventually("the node lives", async || {
        assert!(node.0.try_wait().unwrap().is_none(), "it ended");
        http().get(format!("http://127.0.0.1:{port}/live")).send().await.ok()
    })
    .await;
    // Leaving says a lot.
    let left =
        bench.run(&format!("leave --node http://127.0.0.1:{port} --admin-key-file d/admin-key"));
    assert_eq!(left.code, Some(0), "{left:?}");
    let code = eventually("it ends", async || node.0.try_wait().unwrap()).await;
    assert_eq!(code.code(), Some(0));
}

#[test]
fn data_folders_that_cannot_be_used() {
    let bench = Bench::new();
    let start = |folder: &str| {
        bench.run(&format!("start {} --data-dir {folder} {}", model(), free_ports()))
    };
    let file = bench.file("a-file", "not a folder");
    start(&file).refused_with(1, &[&file]);
    std::fs::create_dir(bench.path("odd-key")).unwrap();
    bench.file("odd-key/node.key", "not a key");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(bench.path("odd-key/node.key"), mode).unwrap();
    start("odd-key").refused_with(1, &["node.key", "not a node key"]);
}

/// Writes a copy of the tiny model with one file changed; returns its path.
fn changed(bench: &Bench, name: &str, file: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> String {
    let folder = bench.path(name);
    copy_folder(&tiny(), &folder);
    let bytes = std::fs::read(folder.join(file)).unwrap();
    std::fs::write(folder.join(file), change(bytes)).unwrap();
    folder.display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn models_that_cannot_be_served() {
    let bench = Bench::new();
    let start =
        |model: &str| bench.run(&format!("start --model {model} --data-dir data {}", free_ports()));
    start("/no/such/model").refused_with(1, &["/no/such/model"]);
    start("no-such-name").refused_with(1, &["no-such-name"]);
    std::fs::create_dir(bench.path("empty")).unwrap();
    start("./empty").refused_with(1, &["empty"]);
    let cut =
        changed(&bench, "cut", "model.safetensors", |bytes| bytes[..bytes.len() / 2].to_vec());
    start(&cut).refused_with(1, &["cut"]);
    let absent = changed(&bench, "absent", "model.safetensors", |bytes| bytes);
    std::fs::remove_file(Path::new(&absent).join("model.safetensors")).unwrap();
    start(&absent).refused_with(1, &["absent"]);
    let other = changed(&bench, "other", "config.json", |bytes| {
        let config = text(&bytes).replace("Qwen3ForCausalLM", "MambaForCausalLM");
        config.replace("\"qwen3\"", "\"mamba\"").into_bytes()
    });
    start(&other).refused_with(1, &["MambaForCausalLM", "Qwen3ForCausalLM"]);
    let larger = changed(&bench, "larger", "config.json", |bytes| {
        text(&bytes).replace("\"hidden_size\": 64", "\"hidden_size\": 96").into_bytes()
    });
    start(&larger).refused_with(1, &["larger"]);
    let broken =
        changed(&bench, "broken", "config.json", |bytes| bytes[..bytes.len() / 2].to_vec());
    start(&broken).refused_with(1, &["config.json"]);
    // GGUF: magic, version 3, one tensor, one key, and nothing behind.
    let mut gguf = b"GGUF\x03\0\0\0".to_vec();
    gguf.extend(1u64.to_le_bytes());
    gguf.extend(1u64.to_le_bytes());
    start(&bench.file("cut.gguf", &gguf)).refused_with(1, &["cut.gguf"]);
    start(&bench.file("odd.gguf", "this is no model")).refused_with(1, &["odd.gguf"]);
    // After all that the same data folder starts with a model that is right.
    let mut node = bench.spawn(&format!("start {} --data-dir data {}", model(), free_ports()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(eventually("it starts", async || {
        assert!(!node.has_ended());
        node.stdout().starts_with("ready ").then_some(())
    }));
}
