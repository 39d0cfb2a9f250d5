//! Ways to go: `leave` and SIGTERM.

use crate::command::Bench;
use crate::kit::Cluster;
use crate::models::tiny;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_node_that_leaves_says_so() {
    let mut cluster = Cluster::plain(&tiny(), 3).await;
    let (left, stopped) = (cluster.id(1), cluster.id(2));
    let bench = Bench::new();
    let ended = bench.run(&format!("leave --node {}", cluster.fleet.node(1).http()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "leaving\n"), "{ended:?}");
    let exit = cluster.fleet.node_mut(1).wait_exit(SOON).await.unwrap();
    assert!(exit.success(), "{exit}");
    cluster.sees(0, &left, "left").await;
    cluster.sees(2, &left, "left").await;

    cluster.fleet.node(2).terminate().unwrap();
    let exit = cluster.fleet.node_mut(2).wait_exit(SOON).await.unwrap();
    assert!(exit.success(), "{exit}");
    cluster.sees(0, &stopped, "left").await;
    let answer = cluster.answer(&cluster.call(0, "Hello")).await;
    assert_eq!(answer.serving_node, cluster.id(0));

    // Who left can come back.
    cluster.fleet.node_mut(1).restart().await.unwrap();
    cluster.fleet.wait_whole(SOON).await.unwrap();
    cluster.sees(0, &left, "alive").await;
    let answer = cluster.answer(&cluster.bound(1, "Hello", "salt")).await;
    assert_eq!(answer.serving_node, left);
}
