use super::{PIECE, WHOLE_WITHIN, content, in_time};
use crate::frame::{Chunks, FrameError, append};
use bytes::Bytes;
use protocol::card::BlobDigest;
use protocol::wire::blobs::{BLOB_MAX, BlobHead};
use std::time::Duration;
use tokio::time::Instant;

const IDLE: Duration = Duration::from_secs(15);

/// A holder that sends each piece just before it is given up.
struct Dribble {
    head: Option<Bytes>,
}

impl Dribble {
    fn of(length: u64) -> Self {
        let mut head = Vec::new();
        append(&mut head, &BlobHead::Present { length }).unwrap();
        Self { head: Some(head.into()) }
    }
}

impl Chunks for Dribble {
    async fn chunk(&mut self, _max: usize) -> Result<Option<Bytes>, FrameError> {
        if let Some(head) = self.head.take() {
            return Ok(Some(head));
        }
        tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
        Ok(Some(vec![0_u8; PIECE].into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_sends_drop_by_drop_is_given_up() {
    let began = Instant::now();
    let digest = BlobDigest([1; 32]);
    let error = in_time(content(Dribble::of(BLOB_MAX), digest, IDLE)).await.unwrap_err();
    assert!(error.contains("not all had come"), "{error}");
    assert!(began.elapsed() < WHOLE_WITHIN + IDLE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_holder_of_few_bytes_is_waited_for() {
    let bytes = vec![0_u8; 3 * PIECE];
    let slow = Dribble::of(bytes.len() as u64);
    assert_eq!(in_time(content(slow, BlobDigest::of(&bytes), IDLE)).await.unwrap(), bytes);
}
