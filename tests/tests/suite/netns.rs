//! Two machines and the wire between them: network namespaces with a pair of virtual Ethernet
//! devices, where the system allows that. Each test runs itself again inside namespaces of its own,
//! so that nothing outside is touched and everything ends with it.

use crate::kit::{PATIENCE, binary, eventually, http};
use crate::models::tiny;
use crate::prompts::text;
use load::client::{Call, Client, Dialect, Outcome};
use load::talk::Conversation;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Set inside the namespaces.
const INSIDE: &str = "NETNS_INSIDE";
/// What a test inside prints when the kernel lacks something.
const SKIPPED: &str = "SKIPPED: ";
const A: &str = "10.77.0.1";
const B: &str = "10.77.0.2";
const CONFIG: &str = "[dram]\nmib = 64\n\
    [placement]\nassume_prefill_tokens_s = 100.0\nassume_bandwidth_mb_s = 1000.0\n";

/// Runs a command; its stderr when it fails.
fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{program} {arguments}: {}", said.lines().next().unwrap_or("failed")))
    }
}

/// Runs the test `name` inside namespaces: `inside` is its body there.
fn in_namespaces(name: &str, inside: impl AsyncFnOnce(&Lab) -> Result<(), String>) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = match Lab::build() {
            Ok(lab) => runtime.block_on(inside(&lab)),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            println!("{SKIPPED}{reason}");
        }
        return;
    }
    for probe in [("unshare", "--user --map-root-user --net true"), ("ip", "-Version")] {
        if let Err(reason) = run(probe.0, probe.1) {
            println!("{SKIPPED}{reason}");
            return;
        }
    }
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed inside its namespaces");
    assert!(said.contains("1 passed"), "{name} did not run inside its namespaces");
}

/// A child process; killed and reaped when dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This process's namespace, A, and another, B, joined by the devices `va` and `vb`.
struct Lab {
    holder: Held,
    folder: tempfile::TempDir,
}

impl Lab {
    fn build() -> Result<Self, String> {
        let holder = Command::new("unshare")
            .args(["--net", "sleep", "300"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let lab = Self { holder: Held(holder), folder: tempfile::tempdir().unwrap() };
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let (begun, pid) = (Instant::now(), lab.holder.0.id().to_string());
        while space(&pid).is_none() || space(&pid) == space("self") {
            if begun.elapsed() > PATIENCE {
                return Err("the second namespace did not come up".into());
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        run("ip", "link set lo up")?;
        run("ip", &format!("link add va type veth peer name vb netns {pid}"))?;
        run("ip", &format!("addr add {A}/24 dev va"))?;
        run("ip", "link set va up")?;
        lab.in_b("ip link set lo up")?;
        lab.in_b(&format!("ip addr add {B}/24 dev vb"))?;
        lab.in_b("ip link set vb up")?;
        Ok(lab)
    }

    /// Runs a command in B.
    fn in_b(&self, command: &str) -> Result<(), String> {
        run("nsenter", &format!("--target {} --net {command}", self.holder.0.id()))
    }

    /// From now on, UDP that arrives at either side vanishes.
    fn block_udp(&self) -> Result<(), String> {
        for (device, b) in [("va", false), ("vb", true)] {
            let run = |command: &str| match b {
                false => run("ip", command),
                true => self.in_b(&format!("ip {command}")),
            };
            // The rule for local addresses comes first of all; it must make room.
            run("rule add pref 10 lookup local")?;
            run("rule del pref 0")?;
            run(&format!("rule add pref 1 iif {device} ipproto udp blackhole"))?;
        }
        Ok(())
    }

    fn data(&self, node: &str) -> PathBuf {
        self.folder.path().join(node)
    }

    fn log(&self, node: &str) -> PathBuf {
        self.folder.path().join(format!("{node}.log"))
    }

    /// Starts a node and waits for its ready line.
    async fn start(&self, node: &str, config: &str) -> Node {
        let (address, peer) = if node == "a" { (A, None) } else { (B, Some(A)) };
        let file = self.folder.path().join(format!("{node}.toml"));
        std::fs::write(&file, format!("{CONFIG}{config}")).unwrap();
        let mut command = match peer {
            None => Command::new(binary()),
            Some(_) => {
                let mut command = Command::new("nsenter");
                command.args(["--target", &self.holder.0.id().to_string(), "--net", "--"]);
                command.arg(binary());
                command
            }
        };
        match peer {
            None => command.arg("start"),
            Some(peer) => command
                .args(["join", &format!("{peer}:7600"), "--token-file"])
                .arg(self.data("a").join("join-token")),
        };
        let out = self.folder.path().join(format!("{node}.out"));
        command
            .args(["--http", &format!("{address}:8000"), "--insecure-http"])
            .args(["--listen", &format!("{address}:7600"), "--model"])
            .arg(tiny())
            .arg("--data-dir")
            .arg(self.data(node))
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(self.log(node)).unwrap());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("DYNAMO_") {
                command.env_remove(name);
            }
        }
        let mut process = Held(command.spawn().unwrap());
        let what = format!("node {node} is ready");
        let id = eventually(&what, async || {
            if let Some(exit) = process.0.try_wait().unwrap() {
                panic!("{node} ended ({exit}): {}", tail(&self.log(node)));
            }
            let said = std::fs::read_to_string(&out).unwrap();
            let word = said.split_whitespace().find_map(|word| word.strip_prefix("node="));
            word.filter(|_| said.ends_with('\n')).map(str::to_owned)
        })
        .await;
        let key = std::fs::read_to_string(self.data(node).join("admin-key")).unwrap();
        let log = self.log(node);
        Node { _process: process, id, http: format!("http://{address}:8000"), key, log }
    }

    /// Both nodes, each seeing the other serve.
    async fn pair(&self, config: &str) -> (Node, Node) {
        let a = self.start("a", config).await;
        let b = self.start("b", config).await;
        for (at, of) in [(&a, &b), (&b, &a)] {
            eventually("the other is alive and serves", async || {
                let view = at.view(of).await;
                let serves = !view["engines"].as_array()?.is_empty();
                (view["state"] == "alive" && serves).then_some(())
            })
            .await;
        }
        (a, b)
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

struct Node {
    _process: Held,
    id: String,
    http: String,
    key: String,
    log: PathBuf,
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of {}:\n{}", self.log.display(), tail(&self.log));
        }
    }
}

impl Node {
    async fn get(&self, path: &str) -> Value {
        let request = http().get(format!("{}{path}", self.http)).bearer_auth(self.key.trim());
        request.send().await.unwrap().json().await.unwrap()
    }

    /// What this node says of another.
    async fn view(&self, other: &Self) -> Value {
        let status = self.get("/admin/v1/status").await;
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        nodes.into_iter().find(|node| node["id"] == other.id.as_str()).unwrap_or_default()
    }

    /// How this node reaches another.
    async fn via(&self, other: &Self) -> String {
        self.view(other).await["path"]["via"].as_str().unwrap_or("nothing").to_owned()
    }

    /// A prompt that enters here and is served at `target`.
    async fn ask(&self, target: &Self, prompt: &str, salt: &str) -> Outcome {
        let client = Client::new(PATIENCE).unwrap();
        let model = client.models(&self.http).await.unwrap().remove(0);
        let talk = Conversation::question(prompt);
        let mut call = Call::new(&self.http, Dialect::Chat, &model, talk);
        call.target = Some(target.id.clone());
        call.cache_salt = Some(salt.to_owned());
        client.call(&call).await
    }
}

/// A prompt that A has computed is served at B, entering at A: one stream to B, the prefix fetched
/// by B from A. Then the same at A, entering at B.
async fn served_and_fetched(a: &Node, b: &Node, seed: u64) {
    let (prompt, salt) = (text(seed, 3000), format!("s{seed}"));
    let cold = a.ask(a, &prompt, &salt).await;
    assert!(cold.ok(), "{cold:?}");
    // The index arrives within a moment; until then B computes, under salts of its own.
    let mut turn = 0;
    let fetched = eventually("B fetches the prefix from A", async || {
        turn += 1;
        let salt = format!("s{seed}-{turn}");
        let cold = a.ask(a, &prompt, &salt).await;
        let run = a.ask(b, &prompt, &salt).await;
        assert!(cold.ok() && run.ok(), "{run:?}");
        assert_eq!(run.serving_node, b.id);
        (run.cached.peer * 100 >= run.prompt_tokens * 80).then_some(run)
    })
    .await;
    assert_eq!(fetched.token_ids, cold.token_ids);
    let back = b.ask(a, &prompt, &salt).await;
    assert!(back.ok(), "{back:?}");
    assert_eq!(
        (back.serving_node.as_str(), back.entry_node.as_str()),
        (a.id.as_str(), b.id.as_str())
    );
    assert_eq!(back.token_ids, cold.token_ids);
    println!("{} of {} tokens from the peer", fetched.cached.peer, fetched.prompt_tokens);
}

#[test]
fn behind_a_udp_block_nodes_join_serve_and_fetch() {
    in_namespaces("netns::behind_a_udp_block_nodes_join_serve_and_fetch", async |lab| {
        lab.block_udp()?;
        let begun = Instant::now();
        let (a, b) = lab.pair("").await;
        println!("joined in {:?}", begun.elapsed());
        served_and_fetched(&a, &b, 1).await;
        assert_eq!((a.via(&b).await, b.via(&a).await), ("tls-tcp".into(), "tls-tcp".into()));
        Ok(())
    });
}

#[test]
fn nodes_without_udp_need_no_block_to_notice() {
    in_namespaces("netns::nodes_without_udp_need_no_block_to_notice", async |lab| {
        let (a, b) = lab.pair("[transfer]\nudp = false\n").await;
        served_and_fetched(&a, &b, 2).await;
        assert_eq!((a.via(&b).await, b.via(&a).await), ("tls-tcp".into(), "tls-tcp".into()));
        Ok(())
    });
}

/// A firewall rule comes while the cluster runs: what was under way ends within the idle time, then
/// requests go over TLS-TCP.
#[test]
fn a_udp_block_that_comes_later_is_got_around() {
    in_namespaces("netns::a_udp_block_that_comes_later_is_got_around", async |lab| {
        let (a, b) = lab.pair("").await;
        served_and_fetched(&a, &b, 3).await;
        assert_eq!((a.via(&b).await, b.via(&a).await), ("quic".into(), "quic".into()));
        lab.block_udp()?;
        let blocked = Instant::now();
        eventually("requests get through again", async || {
            // Each direction finds out for itself.
            let runs = [a.ask(&b, "Hello", "later").await, b.ask(&a, "Hello", "later").await];
            let ways = [a.via(&b).await, b.via(&a).await];
            (runs.iter().all(Outcome::ok) && ways == ["tls-tcp", "tls-tcp"]).then_some(())
        })
        .await;
        println!("around the block after {:?}", blocked.elapsed());
        served_and_fetched(&a, &b, 4).await;
        Ok(())
    });
}

#[test]
fn a_slow_and_lossy_wire_delivers() {
    in_namespaces("netns::a_slow_and_lossy_wire_delivers", async |lab| {
        // netem delays and loses; where the kernel lacks it, a narrow wire with a short queue does.
        let netem = "tc qdisc add dev DEV root netem delay 15ms 5ms loss 2%";
        let narrow = "tc qdisc add dev DEV root tbf rate 30mbit burst 6kb limit 30kb";
        let mut used = "";
        for wire in [netem, narrow] {
            let (program, arguments) = wire.split_once(' ').unwrap();
            if run(program, &arguments.replace("DEV", "va")).is_ok() {
                lab.in_b(&wire.replace("DEV", "vb"))?;
                used = wire;
                break;
            }
        }
        if used.is_empty() {
            return Err("tc has neither netem nor tbf".into());
        }
        println!("{used}");
        let (a, b) = lab.pair("").await;
        served_and_fetched(&a, &b, 5).await;
        Ok(())
    });
}

/// Packets that were sent on a device of this namespace and did not arrive.
fn swallowed(device: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let of = |line: &str| line.trim().strip_prefix(&format!("{device}:")).map(str::to_owned);
    let counters = table.lines().find_map(of).unwrap();
    // Eight of receiving, then bytes, packets, errors, dropped.
    counters.split_whitespace().nth(11).unwrap().parse().unwrap()
}

/// One side takes long packets, the other silently drops them, and nobody is told.
#[test]
fn a_wire_that_swallows_long_packets_delivers() {
    in_namespaces("netns::a_wire_that_swallows_long_packets_delivers", async |lab| {
        run("ip", "link set va mtu 9000")?;
        lab.in_b("ip link set vb mtu 1300")?;
        let (a, b) = lab.pair("").await;
        served_and_fetched(&a, &b, 6).await;
        assert!(swallowed("va") > 0, "the wire was as wide as the packets");
        assert_eq!((a.via(&b).await, b.via(&a).await), ("quic".into(), "quic".into()));
        Ok(())
    });
}
