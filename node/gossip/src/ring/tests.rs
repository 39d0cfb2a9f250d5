use super::*;
use protocol::event::SetDigest;
use protocol::id::Incarnation;
use protocol::sign::Keypair;

fn batch(seq: u64, bytes: usize) -> EventBatch {
    let keypair = Keypair::from_seed(&[1; 32]);
    EventBatch {
        origin: keypair.node(),
        incarnation: Incarnation::default(),
        seq: Seq(seq),
        previous: [0; 32],
        digest: SetDigest::default(),
        payload: vec![0; bytes],
        signature: keypair.sign(b""),
    }
}

fn seqs(ring: &Ring, from: u64, to: u64) -> Option<Vec<u64>> {
    Some(ring.range(Seq(from), Seq(to))?.map(|b| b.seq.0).collect())
}

#[test]
fn keeps_the_newest_within_count_and_bytes() {
    let mut ring = Ring::new(Keep { count: 4, bytes: 10_000 });
    for seq in 1..=10 {
        ring.push(batch(seq, 10));
    }
    assert_eq!(seqs(&ring, 7, 10), Some(vec![7, 8, 9, 10]));
    assert_eq!(seqs(&ring, 8, 9), Some(vec![8, 9]));
    assert_eq!(seqs(&ring, 6, 10), None, "too old");
    assert_eq!(seqs(&ring, 11, 12), None, "not yet");
    ring.push(batch(11, 9000));
    assert_eq!(seqs(&ring, 11, 11), Some(vec![11]));
    assert!(ring.bytes <= 10_000);
    ring.push(batch(12, 20_000));
    assert_eq!(seqs(&ring, 12, 12), None, "too big to keep at all");
    assert_eq!(ring.bytes, 0);
}

#[test]
fn a_jump_starts_anew() {
    let mut ring = Ring::new(Keep { count: 4, bytes: 10_000 });
    ring.push(batch(1, 10));
    ring.push(batch(5, 10));
    assert_eq!(seqs(&ring, 1, 5), None);
    assert_eq!(seqs(&ring, 5, 9), Some(vec![5]));
}
