use super::process::Ready;
use super::*;
use crate::fake::{Fake, process_runs, script};

fn with_mode(options: FleetOptions, mode: &str) -> FleetOptions {
    let mut options = options;
    options.env.push(("FAKE_MODE".into(), mode.into()));
    options
}

/// A root that the test can look at after a failed start.
fn fresh_root(options: &mut FleetOptions) -> PathBuf {
    let root = tempfile::tempdir().unwrap().path().join("root"); // its parent is removed here
    options.root = Some(root.clone());
    root
}

#[test]
fn only_a_whole_ready_line_is_one() {
    let ready = Ready::read("ready http://127.0.0.1:8000/ node=abc cluster=def").unwrap();
    assert_eq!(ready.http, "http://127.0.0.1:8000");
    assert_eq!((ready.node.as_str(), ready.cluster.as_str()), ("abc", "def"));
    for line in [
        "",
        "already http://127.0.0.1:8000 node=abc cluster=def",
        "ready http://127.0.0.1:8000 node=abc",
        "ready node=abc cluster=def",
        "ready http://127.0.0.1:8000 node= cluster=def",
    ] {
        assert_eq!(Ready::read(line), None, "{line:?}");
    }
}

#[tokio::test]
async fn a_fleet_starts_is_whole_and_leaves_nothing_behind() {
    let fake = Fake::start(3).await;
    let options = fake.fleet(3);
    let fleet = Fleet::start(options).await.unwrap();
    let root = fleet.root().to_owned();
    assert_eq!(fleet.nodes().len(), 3);
    for (index, node) in fleet.nodes().iter().enumerate() {
        assert_eq!(node.index(), index);
        assert_eq!(node.node_id(), format!("id-n{index}"));
        assert_eq!(node.http(), fake.url(index));
        let now = node.rss_bytes();
        assert!(now.unwrap() > 0);
        // Asked after it: the process may still grow.
        assert!(node.peak_rss_bytes() >= now);
        let verb = if index == 0 { "verb start" } else { "verb join" };
        assert!(node.log_tail().contains(verb), "{}", node.log_tail());
    }
    assert_eq!(fleet.position("id-n2"), Some(2));
    assert_eq!(fleet.status(1).await.unwrap().nodes.len(), 3);
    let pids: Vec<u32> = fleet.nodes().iter().map(Node::pid).collect();
    assert!(pids.iter().all(|pid| process_runs(*pid)));
    drop(fleet);
    assert!(pids.iter().all(|pid| !process_runs(*pid)), "drop waits for their end");
    assert!(!root.exists());
}

#[tokio::test]
async fn a_panic_kills_the_nodes_too() {
    let fake = Fake::start(1).await;
    let fleet = Fleet::start(fake.fleet(1)).await.unwrap();
    let pid = fleet.node(0).pid();
    let panicked = tokio::spawn(async move {
        let _fleet = fleet;
        std::panic::resume_unwind(Box::new("a failed test"));
    })
    .await;
    assert!(panicked.is_err());
    assert!(!process_runs(pid));
}

#[tokio::test]
async fn a_cancelled_start_kills_what_it_had_started() {
    let fake = Fake::start(2).await;
    let mut options = fake.fleet(2);
    options.env.retain(|(name, _)| name != "FAKE_HTTP_n1"); // n1 never answers: not whole
    let folder = fresh_root(&mut options);
    let pid_file = PathBuf::from(&options.env[0].1).join("n1");
    let start = Fleet::start(options);
    let n1_runs = async {
        while std::fs::read_to_string(&pid_file).map_or(true, |pid| pid.trim().is_empty()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::read_to_string(&pid_file).unwrap().trim().parse::<u32>().unwrap()
    };
    let pid = tokio::select! {
        pid = n1_runs => pid,
        fleet = start => panic!("{fleet:?}"),
    };
    assert!(!process_runs(pid));
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_node_that_ends_at_once_shows_its_log() {
    let fake = Fake::start(1).await;
    let mut options = with_mode(fake.fleet(1), "refuse");
    let root = fresh_root(&mut options);
    let error = Fleet::start(options).await.unwrap_err().to_string();
    for part in ["n0", "exit status: 1", "the model file is truncated", "help: fetch it again"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    assert!(!root.exists());
}

#[tokio::test]
async fn a_silent_node_is_not_waited_for_without_end() {
    let fake = Fake::start(1).await;
    let mut options = with_mode(fake.fleet(1), "silent");
    options.ready_within = Duration::from_millis(300);
    let error = Fleet::start(options).await.unwrap_err().to_string();
    assert!(error.contains("was not ready"), "{error}");
    assert!(error.contains("verb start"), "{error}");
}

#[tokio::test]
async fn a_taken_port_is_tried_again_with_another() {
    let fake = Fake::start(1).await;
    let fleet = Fleet::start(with_mode(fake.fleet(1), "busy")).await.unwrap();
    let log = fleet.node(0).log_tail();
    let starts: Vec<&str> = log.lines().filter(|line| line.contains("verb start")).collect();
    assert_eq!(starts.len(), 2, "{log}");
    assert_ne!(starts[0], starts[1], "with other ports");
}

#[tokio::test]
async fn a_missing_binary_is_named() {
    let fake = Fake::start(1).await;
    let mut options = fake.fleet(1);
    options.binary = "/nowhere/dynamo-node".into();
    let error = Fleet::start(options).await.unwrap_err();
    assert!(matches!(error, LoadError::Spawn { .. }), "{error}");
    assert!(error.to_string().contains("/nowhere/dynamo-node"), "{error}");
}

#[tokio::test]
async fn a_folder_in_use_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("precious"), "x").unwrap();
    let mut options = FleetOptions::new(script(), 1);
    options.root = Some(folder.path().to_owned());
    let error = Fleet::start(options).await.unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    assert!(folder.path().join("precious").exists());
}

#[tokio::test]
async fn a_killed_node_is_seen_as_gone_and_comes_back() {
    let fake = Fake::start(2).await;
    let mut fleet = Fleet::start(fake.fleet(2)).await.unwrap();
    let (pid, ports) = (fleet.node(1).pid(), fleet.node(1).cluster_addr());
    fleet.node_mut(1).kill9().await.unwrap();
    assert!(!fleet.node(1).running());
    assert!(!process_runs(pid));
    assert_eq!(fleet.node(1).rss_bytes(), None);
    fleet.wait_gone("id-n1", Duration::from_secs(5)).await.unwrap();
    let error = fleet.wait_gone("id-n0", Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("n0 sees"), "{error}");
    fleet.node_mut(1).restart().await.unwrap();
    assert_ne!(fleet.node(1).pid(), pid);
    assert_eq!(fleet.node(1).cluster_addr(), ports);
    assert!(fleet.node(1).log_tail().contains("verb start"));
    fleet.wait_whole(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_terminated_node_ends() {
    let fake = Fake::start(1).await;
    let mut fleet = Fleet::start(fake.fleet(1)).await.unwrap();
    fleet.node(0).terminate().unwrap();
    let exit = fleet.node_mut(0).wait_exit(Duration::from_secs(5)).await.unwrap();
    assert!(!exit.success());
    assert_eq!(fleet.node_mut(0).wait_exit(Duration::ZERO).await.unwrap(), exit);
    fleet.node(0).terminate().unwrap(); // its id is not signalled any more
}
