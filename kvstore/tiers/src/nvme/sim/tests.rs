use super::super::{Batch, Disk, DiskError, FileId, Index};
use super::*;
use std::collections::BTreeSet;

fn device(seed: u64, sector: usize) -> SimDisk {
    let disk = SimDisk::new(seed, sector, DiskFaults::default());
    disk.reserve(FileId(0), 8192).unwrap();
    disk
}

fn read(disk: &SimDisk, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    disk.read_at(FileId(0), offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_crash_keeps_synced_bytes_and_any_subset_of_the_other_sectors() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let disk = device(seed, 512);
        disk.write_at(FileId(0), 0, &[1; 1024]).unwrap();
        disk.sync(FileId(0)).unwrap();
        disk.write_at(FileId(0), 0, &[2; 1024]).unwrap();
        disk.write_at(FileId(0), 0, &[3; 1024]).unwrap();
        assert_eq!(read(&disk, 0, 1024), [3; 1024]);
        disk.crash();
        let bytes = read(&disk, 0, 1024);
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        outcomes.insert((bytes[0], bytes[512]));
    }
    assert_eq!(outcomes.len(), 9, "old, middle and new content of each of two sectors");
}

#[test]
fn a_failed_sync_leaves_bytes_readable_that_never_reach_the_medium() {
    let disk = device(1, 4096);
    disk.write_at(FileId(0), 0, &[5; 4096]).unwrap();
    disk.set_faults(DiskFaults { sync_error: 1_000_000, ..DiskFaults::default() });
    assert!(disk.sync(FileId(0)).is_err());
    disk.set_faults(DiskFaults::default());
    // Asked again it says yes, and yet:
    disk.sync(FileId(0)).unwrap();
    disk.crash();
    assert_eq!(read(&disk, 0, 4096), [0; 4096]);
}

#[test]
fn equal_seeds_do_equal_things() {
    let run = || {
        let disk = device(9, 512);
        let faults = DiskFaults {
            write_error: 200_000,
            bit_flip: 200_000,
            misdirected_write: 200_000,
            ..DiskFaults::default()
        };
        disk.set_faults(faults);
        let results: Vec<_> =
            (0..50u8).map(|n| disk.write_at(FileId(0), 512, &[n; 2048]).is_ok()).collect();
        disk.crash();
        disk.set_faults(DiskFaults::default());
        (results, read(&disk, 0, 8192))
    };
    assert_eq!(run(), run());
}

#[test]
fn slow_and_full_disks_are_data() {
    let disk = device(1, 512);
    let latency = protocol::time::Span::millis(2);
    disk.set_faults(DiskFaults { latency, byte_ps: 1000, capacity: 8192, ..DiskFaults::default() });
    disk.write_at(FileId(0), 0, &[0; 4096]).unwrap();
    assert_eq!(disk.take_spent().0, 2_000_000 + 4096);
    assert_eq!(disk.reserve(FileId(1), 1), Err(DiskError::Full));
    assert_eq!(disk.used(), 8192);
}

#[test]
fn the_index_keeps_a_prefix_of_what_was_not_synced() {
    let mut lengths = BTreeSet::new();
    for seed in 0..100 {
        let index = SimIndex::new(seed, IndexFaults::default());
        for n in 0..6u8 {
            let mut batch = Batch::default();
            batch.put(vec![n], vec![n]);
            index.commit(&batch, n == 2).unwrap();
        }
        index.crash();
        let mut keys = Vec::new();
        index.scan(&mut |key, _| keys.push(key[0])).unwrap();
        assert_eq!(keys, (0..keys.len() as u8).collect::<Vec<_>>());
        lengths.insert(keys.len());
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
}
