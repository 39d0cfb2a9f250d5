//! Each fault by itself.

use super::*;

#[test]
fn a_failed_sync_is_never_a_success_and_its_extent_is_made_anew() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = options(&maker, 4);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    let (kept, other) = (maker.block(1, None), maker.block(2, None));
    put(&nvme, &maker, 0, &kept).unwrap();
    put(&nvme, &maker, 2, &other).unwrap();
    disk.set_faults(DiskFaults { sync_error: 1_000_000, ..DiskFaults::default() });
    let lost = maker.block(3, None);
    assert!(matches!(put(&nvme, &maker, 1, &lost), Err(WriteError::Failed(_))));
    // The next sync would succeed, as Linux has it; it proves nothing.
    disk.set_faults(DiskFaults::default());
    assert!(put(&nvme, &maker, 1, &lost).is_err());
    assert!(nvme.failing().unwrap().contains("could not be synced"));
    let abandoned = nvme.abandoned();
    assert_eq!(abandoned.iter().collect::<Vec<_>>(), [&FileId(0)]);
    let again = open_sim(&disk, &index, &OpenOptions { abandoned, ..options }).unwrap();
    let found: Vec<_> = again.found.iter().map(|(slot, block)| (*slot, block.key)).collect();
    assert_eq!(found, [(SlotId(2), other.key)], "the extent's blocks are forgotten");
    put(&again.nvme, &maker, 0, &kept).unwrap();
    assert_eq!(get(&again.nvme, 0, &kept.key).unwrap(), maker.bytes(1));
}

#[test]
fn a_full_disk_takes_what_fits_and_is_not_a_failing_one() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = OpenOptions { extent_bytes: 8 * 4096, ..options(&maker, 16) };
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    disk.set_faults(DiskFaults { capacity: 4 * 4096, ..DiskFaults::default() });
    let mut stored = 0;
    for slot in 0..16 {
        let block = maker.block(u128::from(slot) + 1, None);
        match put(&nvme, &maker, slot, &block) {
            Ok(()) => stored += 1,
            Err(error) => assert_eq!(error, WriteError::Failed(DiskError::Full)),
        }
        assert!(disk.used() <= 4 * 4096);
    }
    assert_eq!(stored, 3, "the probe area takes the fourth");
    assert_eq!((nvme.failing(), nvme.counters().full > 0), (None, true));
    // The blocks that fitted are there after a crash, and room makes room.
    disk.crash();
    index.crash();
    disk.set_faults(DiskFaults::default());
    let again = open_sim(&disk, &index, &options).unwrap();
    assert_eq!(again.found.len(), 3);
    put(&again.nvme, &maker, 15, &maker.block(99, None)).unwrap();
}

#[test]
fn a_full_index_takes_no_records_but_still_forgets() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let nvme = open_sim(&disk, &index, &options(&maker, 4)).unwrap().nvme;
    let first = maker.block(1, None);
    put(&nvme, &maker, 0, &first).unwrap();
    index.set_faults(IndexFaults { full: true, ..IndexFaults::default() });
    nvme.forget(SlotId(0), &first.key);
    let refused = put(&nvme, &maker, 1, &maker.block(2, None));
    assert_eq!(refused, Err(WriteError::Failed(DiskError::IndexFull)));
    assert_eq!((index.len(), nvme.failing()), (1, None), "only the description is left");
    index.set_faults(IndexFaults::default());
    put(&nvme, &maker, 1, &maker.block(2, None)).unwrap();
}

#[test]
fn errors_in_a_row_mean_a_failing_disk_and_single_ones_do_not() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let nvme = open_sim(&disk, &index, &options(&maker, 8)).unwrap().nvme;
    let block = maker.block(1, None);
    put(&nvme, &maker, 0, &block).unwrap();
    let sick = DiskFaults { read_error: 1_000_000, ..DiskFaults::default() };
    for _ in 0..3 {
        disk.set_faults(sick);
        for _ in 0..4 {
            assert!(matches!(get(&nvme, 0, &block.key), Err(ReadError::Failed(_))));
        }
        disk.set_faults(DiskFaults::default());
        get(&nvme, 0, &block.key).unwrap();
    }
    assert_eq!(nvme.failing(), None);
    // Writes fail in a row although reads go well.
    disk.set_faults(DiskFaults { read_only: true, ..DiskFaults::default() });
    for slot in 1..6 {
        assert!(put(&nvme, &maker, slot, &maker.block(9, None)).is_err());
        get(&nvme, 0, &block.key).unwrap();
    }
    assert!(nvme.failing().unwrap().contains("read-only"), "{:?}", nvme.failing());
}

#[test]
fn a_torn_block_and_a_stale_one_are_corrupt_once_and_gone_then() {
    let maker = Maker::new(8192);
    let (disk, index) = sim();
    let nvme = open_sim(&disk, &index, &options(&maker, 4)).unwrap().nvme;
    let (torn, stale) = (maker.block(1, None), maker.block(2, None));
    put(&nvme, &maker, 0, &torn).unwrap();
    disk.write_at(FileId(0), 4096, &[0; 512]).unwrap();
    assert_eq!(get(&nvme, 0, &torn.key), Err(ReadError::Corrupt));
    // Gone from the index with the next commit, and at once for readers.
    assert_eq!(get(&nvme, 0, &torn.key), Err(ReadError::Corrupt));
    assert_eq!(nvme.counters().corrupt, 1);
    disk.set_faults(DiskFaults { lost_write: 1_000_000, ..DiskFaults::default() });
    put(&nvme, &maker, 0, &stale).unwrap();
    disk.set_faults(DiskFaults::default());
    assert_eq!(get(&nvme, 0, &stale.key), Err(ReadError::Corrupt));
    nvme.flush().unwrap();
    assert_eq!((index.len(), nvme.blocks()), (1, 0));
}

#[test]
fn a_block_signed_by_nobody_is_not_served() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = options(&maker, 4);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    let mut forged = maker.block(1, None);
    forged.signed.producer = Keypair::from_seed(&[8; 32]).node();
    put(&nvme, &maker, 0, &forged).unwrap();
    drop(nvme);
    let again = open_sim(&disk, &index, &options).unwrap();
    assert_eq!(get(&again.nvme, 0, &forged.key), Err(ReadError::Corrupt));
}

#[test]
fn callers_mistakes_are_refused() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let nvme = open_sim(&disk, &index, &options(&maker, 4)).unwrap().nvme;
    let (block, other) = (maker.block(1, None), maker.block(2, None));
    put(&nvme, &maker, 0, &block).unwrap();
    let refused = |result| matches!(result, Err(WriteError::Refused(_)));
    assert!(refused(put(&nvme, &maker, 0, &other)), "not forgotten before");
    assert!(refused(put(&nvme, &maker, 4, &other)), "outside");
    let foreign = Maker::new(8192);
    assert!(refused(put(&nvme, &foreign, 1, &foreign.block(2, None))), "another namespace");
    let bytes = vec![0; 4095];
    let job = WriteJob { slot: SlotId(1), block: &other, bytes: &bytes };
    assert!(refused(nvme.write(&[job], NOW).remove(0)), "too short");
    assert!(!nvme.forget(SlotId(0), &other.key), "it holds another block");
    assert_eq!(get(&nvme, 0, &other.key), Err(ReadError::Corrupt));
    assert_eq!(get(&nvme, 0, &block.key).unwrap(), maker.bytes(1));
}
