//! A data folder that was restored from an older copy.

use crate::command::copy_folder;
use crate::kit::{Cluster, PATIENCE, eventually};
use crate::models::tiny;

#[tokio::test]
async fn a_node_on_an_older_copy_of_its_folder_goes_on_by_itself() {
    let mut cluster = Cluster::plain(&tiny(), 2).await;
    let (id, data) = (cluster.id(1), cluster.fleet.node(1).data_dir());
    cluster.fleet.node_mut(1).kill9().await.unwrap();
    let backup = data.with_file_name("backup");
    copy_folder(&data, &backup);
    // Two more lives that the copy knows nothing of.
    for _ in 0..2 {
        cluster.fleet.node_mut(1).restart().await.unwrap();
        cluster.fleet.wait_whole(PATIENCE).await.unwrap();
        cluster.fleet.node_mut(1).kill9().await.unwrap();
    }
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&backup, &data).unwrap();

    cluster.fleet.node_mut(1).restart().await.unwrap();
    // It first lives in a life that is long over, hears of the later ones, and begins anew.
    eventually("a life after all others", async || {
        let life = cluster.view(0, &id).await["incarnation"].as_u64()?;
        (life > 3).then_some(())
    })
    .await;
    cluster.fleet.wait_whole(PATIENCE).await.unwrap();
    let answer = cluster.answer(&cluster.bound(1, "Hello", "salt")).await;
    assert_eq!(answer.serving_node, id);
}
