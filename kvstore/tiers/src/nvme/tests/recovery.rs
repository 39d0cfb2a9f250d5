//! What an earlier life left.

use super::super::record::{META_KEY, RecordKey};
use super::*;

fn chain(maker: &Maker, nvme: &Sim, length: u32) -> Vec<DiskBlock> {
    let mut blocks: Vec<DiskBlock> = Vec::new();
    // Slots run against the chain, so that order comes from the tokens.
    for n in 0..length {
        let block = maker.block(u128::from(n) + 100, blocks.last());
        put(nvme, maker, length - 1 - n, &block).unwrap();
        blocks.push(block);
    }
    blocks
}

#[test]
fn a_restart_finds_everything_parents_first_with_claims_that_aged() {
    let maker = Maker::new(5000);
    let (disk, index) = sim();
    let options = options(&maker, 8);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    let blocks = chain(&maker, &nvme, 6);
    let pinned = claim(Some(Span::secs(100)), None);
    nvme.keep(SlotId(5), &blocks[0].key, vec![pinned.clone(), claim(None, None)], NOW);
    nvme.flush().unwrap();
    drop(nvme);
    let after = |seconds| {
        let now = UnixTime(NOW.0 + seconds);
        let opened = Nvme::open(disk.clone(), index.clone(), &options, now).unwrap();
        assert_eq!(opened.report, OpenReport { found: 6, ..OpenReport::default() });
        opened.found
    };
    let found = after(40);
    let keys: Vec<_> = found.iter().map(|(_, block)| block.key).collect();
    assert_eq!(keys, blocks.iter().map(|block| block.key).collect::<Vec<_>>());
    assert_eq!(found[0].0, SlotId(5));
    let restored = Claim { ttl: Some(Span::secs(60)), ..pinned.clone() };
    assert_eq!(found[0].1.claims, [restored, claim(None, None)]);
    assert_eq!(found[1].1, blocks[1]);
    // A pin that is over is a claim without one; a clock that went back adds nothing.
    assert_eq!(after(100)[0].1.claims, [claim(None, None), claim(None, None)]);
    let now = UnixTime(NOW.0 - 1_000_000);
    let opened = Nvme::open(disk.clone(), index.clone(), &options, now).unwrap();
    assert_eq!(opened.found[0].1.claims[0], pinned);
}

#[test]
fn a_block_beyond_its_legal_age_is_gone_with_what_hangs_on_it() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = options(&maker, 4);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    let blocks = chain(&maker, &nvme, 3);
    nvme.keep(SlotId(1), &blocks[1].key, vec![claim(None, Some(Span::secs(10)))], NOW);
    nvme.flush().unwrap();
    drop(nvme);
    let now = UnixTime(NOW.0 + 11);
    let opened = Nvme::open(disk, index.clone(), &options, now).unwrap();
    assert_eq!(opened.found.len(), 1);
    assert_eq!((opened.report.expired, opened.report.orphans), (1, 1));
    assert_eq!(index.len(), 2, "their records are gone");
}

#[test]
fn a_smaller_limit_shrinks_before_anything_is_served() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let nvme = open_sim(&disk, &index, &options(&maker, 8)).unwrap().nvme;
    for n in 0..8u32 {
        put(&nvme, &maker, n, &maker.block(u128::from(n), None)).unwrap();
    }
    drop(nvme);
    let smaller = options(&maker, 3);
    let opened = open_sim(&disk, &index, &smaller).unwrap();
    let slots: Vec<_> = opened.found.iter().map(|(slot, _)| slot.0).collect();
    assert_eq!((slots, opened.report.outside), (vec![0, 1, 2], 5));
    assert!(disk.used() <= smaller.limit && opened.nvme.data_bytes() <= smaller.limit);
    assert_eq!(index.len(), 4);
    // Growing again brings room, not ghosts.
    let opened = open_sim(&disk, &index, &options(&maker, 8)).unwrap();
    assert_eq!((opened.found.len(), opened.nvme.layout().slots), (3, 8));
    put(&opened.nvme, &maker, 7, &maker.block(77, None)).unwrap();
}

#[test]
fn another_namespace_begins_anew_and_a_later_release_is_left_alone() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = options(&maker, 4);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    chain(&maker, &nvme, 4);
    drop(nvme);
    for (field, change) in [
        ("kv_dtype", (|s| s.kv_dtype = "bf16".into()) as fn(&mut StorageNamespace)),
        ("layout", |s| s.layout = "test-2".into()),
        ("block_bytes", |s| s.block_bytes = 8192),
    ] {
        let mut other = options.clone();
        change(&mut other.storage);
        let opened = open_sim(&disk, &index, &other).unwrap();
        assert!(opened.report.fresh.unwrap().contains(field));
        assert_eq!((opened.found.len(), index.len(), disk.used()), (0, 1, SECTOR));
        let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
        chain(&maker, &nvme, 4);
    }
    let newer = super::super::record::seal_as(2, META_KEY, &"of a later release").unwrap();
    index.plant(META_KEY, &newer);
    let refused = open_sim(&disk, &index, &options).unwrap_err();
    assert_eq!(refused, NvmeError::Newer { found: "2".into(), known: 1 });
    assert!(refused.to_string().contains("start that release"));
    assert_eq!(index.len(), 5, "nothing was touched");
    // A damaged description cannot say what the bytes are.
    index.plant(META_KEY, &newer[1..]);
    let opened = open_sim(&disk, &index, &options).unwrap();
    assert!(opened.report.fresh.is_some() && opened.found.is_empty());
}

#[test]
fn damaged_doubled_and_foreign_records_are_dropped_one_by_one() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = options(&maker, 6);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    let blocks = chain(&maker, &nvme, 4);
    drop(nvme);
    let name = |block: &DiskBlock, slot| {
        let (tokens, prefix) = (block.tokens, block.key.prefix);
        RecordKey { tokens, prefix, slot: SlotId(slot) }.encode()
    };
    // The last block of the chain under other names: its checksum binds it to its own.
    let last = index.get(&name(&blocks[3], 0)).unwrap().unwrap();
    index.plant(&name(&blocks[3], 5), &last);
    index.plant(b"bgarbage", &last);
    index.plant(&name(&maker.block(7, None), 1), b"");
    // A sound record of a slot that another record has.
    let twin = maker.block(8, None);
    let sealed =
        super::super::record::seal(&name(&twin, 3), &super::super::record::Record::new(&twin, NOW));
    index.plant(&name(&twin, 3), &sealed.unwrap());
    let opened = open_sim(&disk, &index, &options).unwrap();
    assert_eq!(opened.report.damaged, 3);
    assert_eq!(opened.report.twice, 1);
    assert!(opened.report.found >= 1);
    let again = open_sim(&disk, &index, &options).unwrap();
    assert_eq!(again.report.damaged + again.report.twice, 0, "their records are gone");
}

#[test]
fn an_orphans_room_is_free() {
    let maker = Maker::new(4096);
    let (disk, index) = sim();
    let options = options(&maker, 4);
    let nvme = open_sim(&disk, &index, &options).unwrap().nvme;
    let blocks = chain(&maker, &nvme, 4);
    nvme.forget(SlotId(2), &blocks[1].key);
    nvme.flush().unwrap();
    drop(nvme);
    let opened = open_sim(&disk, &index, &options).unwrap();
    assert_eq!((opened.found.len(), opened.report.orphans), (1, 2));
    put(&opened.nvme, &maker, 0, &maker.block(5, None)).unwrap();
    put(&opened.nvme, &maker, 1, &maker.block(6, None)).unwrap();
}
