use super::*;
use crate::config::PART_HASHES;
use protocol::block::StorageId;
use protocol::event::{Holder, SetDigest};
use protocol::id::Incarnation;
use protocol::wire::{FRAME_MAX, encode};

fn snapshot(runs: &[usize]) -> Snapshot {
    let mut name = 0u128;
    let runs: Vec<EventRun> = runs
        .iter()
        .map(|length| EventRun::Stored {
            storage: StorageId(u64::MAX),
            holder: Holder::Dram,
            first: 64,
            hashes: (0..*length)
                .map(|_| {
                    name += 1;
                    PrefixHash(u128::MAX - name)
                })
                .collect(),
        })
        .collect();
    Snapshot {
        origin: NodeId([1; 32]),
        incarnation: Incarnation { counter: 1, nonce: 1 },
        watermark: Seq(9),
        link: [0; 32],
        digest: SetDigest { count: runs.iter().map(names).sum::<usize>() as u64, mix: 0 },
        runs,
    }
}

/// (length of prefix, name) of all entries.
fn entries(snapshots: &[Snapshot]) -> Vec<(u32, PrefixHash)> {
    snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.runs)
        .flat_map(|run| {
            let EventRun::Stored { first, hashes, .. } = run else { panic!("{run:?}") };
            hashes.iter().zip(0u32..).map(move |(hash, n)| (first + n * INDEX_GRANULE, *hash))
        })
        .collect()
}

#[test]
fn frames_keep_every_entry_with_its_length_and_fit_the_wire() {
    let whole = vec![
        snapshot(&[]),
        snapshot(&[10, 20]),
        snapshot(&[PART_HASHES * 2 + 5, 7, PART_HASHES - 1]),
        snapshot(&[3]),
    ];
    let frames = into_frames(whole.clone(), PART_HASHES);
    assert!(frames.len() >= 4, "{}", frames.len());
    for frame in &frames {
        assert!(encode(&Direct::Snapshots(frame.clone())).unwrap().len() < FRAME_MAX / 2);
    }
    assert_eq!(entries(&frames.concat()), entries(&whole));
}

#[test]
fn many_small_sets_share_frames() {
    let sets: Vec<Snapshot> = (0..300).map(|_| snapshot(&[1])).collect();
    let frames = into_frames(sets, PART_HASHES);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [256, 44]);
}
