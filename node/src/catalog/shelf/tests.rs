use super::{KEPT, Shelf};
use protocol::card::BlobDigest;
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

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
    for half in [format!("{damaged}.part"), format!("{damaged}.17-3.part")] {
        std::fs::write(folder.path().join(half), "x").unwrap();
    }
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
fn two_writers_of_the_same_bytes_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(folder.path());
    let bytes = vec![7_u8; 256 << 10];
    let digest = BlobDigest::of(&bytes);
    let together = Barrier::new(2);
    let write = || {
        together.wait();
        for _ in 0..50 {
            shelf.put(&digest, &bytes).unwrap();
            assert!(shelf.get(&digest).is_some_and(|kept| kept == bytes), "whole at any time");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        scope.spawn(write);
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_was_not_read_for_longest_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf { room: 25, ..Shelf::open(folder.path()) };
    let own = folder.path().join("mine.gguf");
    std::fs::write(&own, [0_u8; 100]).unwrap();
    let put = |byte: u8, age: u64| {
        let digest = BlobDigest::of(&[byte; 10]);
        shelf.put(&digest, &[byte; 10]).unwrap();
        let file = std::fs::File::open(folder.path().join(digest.to_string())).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        digest
    };
    let (old, oldest) = (put(1, 100), put(2, 200));
    assert!(shelf.get(&oldest).is_some(), "and it is not the oldest any more");
    let new = put(3, 0);
    assert!(shelf.get(&old).is_none());
    assert!(shelf.get(&oldest).is_some() && shelf.get(&new).is_some() && own.exists());
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(folder.path());
    let digest = BlobDigest::of(b"a");
    let path = folder.path().join(digest.to_string());
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(shelf.get(&digest).is_none());
    shelf.put(&digest, b"a").unwrap();
    assert_eq!(shelf.get(&digest).unwrap(), "a");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let shelf = Shelf::open(std::path::Path::new("/proc/none"));
    assert!(shelf.put(&BlobDigest::of(b"a"), b"a").is_err());
    assert!(shelf.get(&BlobDigest::of(b"a")).is_none());
}
