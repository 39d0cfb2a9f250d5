use super::{KEPT, Shelf};
use protocol::card::BlobDigest;
use std::time::SystemTime;

#[test]
fn what_is_kept_comes_back_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("models");
    let digest = BlobDigest::of(b"bytes");
    let shelf = Shelf::open(&folder);
    assert!(shelf.get(&digest).is_none());
    shelf.put(&digest, b"bytes").unwrap();
    shelf.put(&digest, b"bytes").unwrap();
    assert_eq!(Shelf::open(&folder).get(&digest).unwrap(), "bytes");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn damaged_old_and_half_written_files_go() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(folder.path());
    let [damaged, old, fresh] = [b"a", b"b", b"c"].map(|bytes| {
        let digest = BlobDigest::of(bytes);
        shelf.put(&digest, bytes).unwrap();
        digest
    });
    std::fs::write(folder.path().join(damaged.to_string()), "x").unwrap();
    let half = folder.path().join(format!("{damaged}.part"));
    std::fs::write(half, "x").unwrap();
    // What is not its own stays.
    let own = folder.path().join("mine.gguf");
    let own = [own, folder.path().join("mine.part")];
    for path in &own {
        std::fs::write(path, "x").unwrap();
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(SystemTime::now() - KEPT * 2).unwrap();
    }
    let file = std::fs::File::open(folder.path().join(old.to_string())).unwrap();
    file.set_modified(SystemTime::now() - KEPT * 2).unwrap();
    let shelf = Shelf::open(folder.path());
    assert!(shelf.get(&damaged).is_none() && shelf.get(&old).is_none());
    assert_eq!(shelf.get(&fresh).unwrap(), "c");
    assert!(own.iter().all(|path| path.exists()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let shelf = Shelf::open(std::path::Path::new("/proc/none"));
    assert!(shelf.put(&BlobDigest::of(b"a"), b"a").is_err());
    assert!(shelf.get(&BlobDigest::of(b"a")).is_none());
}
