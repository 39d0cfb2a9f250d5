use super::MappedFile;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A file in memory and its path.
fn file(content: &[u8]) -> (File, PathBuf) {
    let mut file = File::from(memfd_create("mapped-test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(content).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    (file, path.into())
}

#[test]
fn gives_the_bytes_of_a_file() {
    let content: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    let (_file, path) = file(&content);
    assert_eq!(MappedFile::open(&path).unwrap().bytes(), content);
}

#[test]
fn an_empty_file_is_no_bytes() {
    let (_file, path) = file(&[]);
    assert!(MappedFile::open(&path).unwrap().bytes().is_empty());
}

#[test]
fn errors_name_the_path() {
    let missing = MappedFile::open(Path::new("/nowhere/weights")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("/nowhere/weights"), "{missing}");
    let folder = MappedFile::open(Path::new("/")).unwrap_err();
    assert!(folder.to_string().contains("not a regular file"), "{folder}");
}
