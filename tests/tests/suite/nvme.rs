//! The NVMe tier over restarts: a prefix is found again with the same answer after an orderly end and
//! after kill -9, other nodes can fetch it, and a folder of another form is a clean miss.

use crate::kit::{Cluster, eventually, with_config};
use crate::models::{slow, tiny};
use crate::prompts::text;
use load::client::Outcome;
use load::fleet::NodeOptions;
use std::path::Path;
use std::time::Duration;

const DISK: &str = "[nvme]\nmib = 64\n";
const BLOCK: u64 = 16;

/// Settings that make reading and fetching the better choice on any machine.
const READING_WINS: &str = "[nvme]\nmib = 64\n\
    [placement]\nassume_prefill_tokens_s = 100.0\nassume_bandwidth_mb_s = 1000.0\n";

async fn run(cluster: &Cluster, node: usize, prompt: &str) -> Outcome {
    let mut call = cluster.bound(node, prompt, "salt");
    call.max_tokens = 24;
    let outcome = cluster.answer(&call).await;
    assert_eq!(outcome.cached.sum() + outcome.computed, outcome.prompt_tokens, "{outcome:?}");
    outcome
}

/// Blocks of a prompt that can be reused: the last token is always computed.
fn reusable(outcome: &Outcome) -> u64 {
    (outcome.prompt_tokens - 1) / BLOCK
}

async fn on_disk(cluster: &Cluster, node: usize) -> u64 {
    let status = cluster.get(node, "/admin/v1/status").await;
    status["nvme"]["blocks"].as_u64().unwrap_or(0)
}

async fn restarted(cluster: &mut Cluster, node: usize, orderly: bool) {
    let running = cluster.fleet.node_mut(node);
    if orderly {
        running.terminate().unwrap();
        assert!(running.wait_exit(Duration::from_secs(30)).await.unwrap().success());
    } else {
        running.kill9().await.unwrap();
    }
    cluster.fleet.node_mut(node).restart().await.unwrap();
    cluster.fleet.wait_whole(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test]
async fn a_restarted_node_finds_its_prefix_on_nvme() {
    for orderly in [true, false] {
        let mut cluster = Cluster::start(&tiny(), vec![with_config(DISK)]).await;
        let prompt = text(1, 1500);
        let cold = run(&cluster, 0, &prompt).await;
        assert_eq!(cold.cached.sum(), 0);
        let blocks = reusable(&cold);
        if !orderly {
            eventually("the prompt is on disk", async || {
                (on_disk(&cluster, 0).await >= blocks).then_some(())
            })
            .await;
        }
        restarted(&mut cluster, 0, orderly).await;
        let warm = run(&cluster, 0, &prompt).await;
        assert_eq!(warm.cached.nvme, blocks * BLOCK, "orderly {orderly}: {warm:?}");
        assert_eq!(warm.token_ids, cold.token_ids, "orderly {orderly}");
        eventually("the lease has ended", async || (cluster.leases(0).await == 0.0).then_some(()))
            .await;
        let again = run(&cluster, 0, &prompt).await;
        assert_eq!((again.cached.gpu, again.cached.nvme), (blocks * BLOCK, 0), "{again:?}");
        assert_eq!(again.token_ids, cold.token_ids);

        let metrics = cluster.metrics(0).await;
        let count = |name: &str| metrics[&format!("dynamo_node_{name}")] as u64;
        assert_eq!(count("nvme_reads{result=\"verified\"}"), blocks);
        assert!(count("nvme_found_total") >= blocks);
        assert_eq!(count("prompt_tokens{source=\"nvme\"}"), blocks * BLOCK);
        assert_eq!(count("nvme_quarantined"), 0);
        let view = cluster.get(0, "/admin/v1/status").await;
        let nvme = &view["nvme"];
        assert_eq!(nvme["state"], "serving");
        assert!(nvme["io"] == "direct" || nvme["io"] == "buffered", "{nvme}");
        assert!(nvme["bytes"].as_u64().unwrap() <= 64 << 20);
        assert_eq!(nvme["limit_bytes"], 64 << 20);
    }
}

#[tokio::test]
async fn another_node_fetches_what_is_only_on_nvme() {
    let mut cluster = Cluster::start(&tiny(), vec![with_config(READING_WINS); 2]).await;
    let prompt = text(2, 1500);
    let cold = run(&cluster, 0, &prompt).await;
    restarted(&mut cluster, 0, true).await;
    assert!(on_disk(&cluster, 0).await >= reusable(&cold));
    cluster.would_fetch((1, 1, 0), (&prompt, "salt"), 0.9).await;
    let fetched = run(&cluster, 1, &prompt).await;
    assert_eq!(fetched.cached.local(), 0);
    assert!(fetched.cached.peer > fetched.prompt_tokens / 2, "{fetched:?}");
    assert_eq!(fetched.token_ids, cold.token_ids);
    assert!(cluster.metrics(0).await["dynamo_node_nvme_staged_total"] > 0.0);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_folder_of_another_form_is_a_clean_miss() {
    let mut cluster = Cluster::start(&tiny(), vec![with_config(DISK)]).await;
    let prompt = text(3, 300);
    run(&cluster, 0, &prompt).await;
    eventually("the prompt is on disk", async || (on_disk(&cluster, 0).await > 0).then_some(()))
        .await;
    cluster.fleet.node_mut(0).kill9().await.unwrap();

    // Blocks of another model: wider, more layers.
    let mut other = Cluster::start(slow(), vec![with_config(DISK)]).await;
    let cold = run(&other, 0, &prompt).await;
    other.fleet.node_mut(0).kill9().await.unwrap();
    let [from, to] = [&cluster, &other].map(|c| c.fleet.node(0).data_dir().join("nvme"));
    std::fs::remove_dir_all(&to).unwrap();
    copy(&from, &to);
    restarted(&mut other, 0, false).await;
    assert_eq!(on_disk(&other, 0).await, 0);
    let again = run(&other, 0, &prompt).await;
    assert_eq!(again.cached.sum(), 0, "{again:?}");
    assert_eq!(again.token_ids, cold.token_ids);
    eventually("its own blocks are kept", async || (on_disk(&other, 0).await > 0).then_some(()))
        .await;
}

#[tokio::test]
async fn without_a_tier_there_is_none() {
    let off = NodeOptions { config: "[nvme]\nmib = 0\n".into(), ..NodeOptions::default() };
    let mut cluster = Cluster::start(&tiny(), vec![off]).await;
    let prompt = text(4, 600);
    let cold = run(&cluster, 0, &prompt).await;
    assert!(cluster.get(0, "/admin/v1/status").await["nvme"].is_null());
    assert!(!cluster.fleet.node(0).data_dir().join("nvme").exists());
    restarted(&mut cluster, 0, true).await;
    let again = run(&cluster, 0, &prompt).await;
    assert_eq!((again.cached.sum(), again.token_ids), (0, cold.token_ids));
}
