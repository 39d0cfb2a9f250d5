use super::{Chunks, FrameError, FrameReader, append};
use bytes::Bytes;
use proptest::prelude::*;
use protocol::wire::FRAME_MAX;
use protocol::wire::blocks::{BlockHead, BlocksRequest};
use protocol::wire::handshake::Hello;
use protocol::wire::join::{JoinAnswer, JoinRequest, REQUEST_MAX};
use protocol::wire::serve::{ServeAnswer, ServeAsk};
use std::collections::VecDeque;

/// A stream that hands out its bytes in given pieces.
struct Pieces(VecDeque<Bytes>);

impl Pieces {
    fn cut(bytes: &[u8], sizes: &[usize]) -> FrameReader<Self> {
        let (mut left, mut pieces) = (Bytes::copy_from_slice(bytes), VecDeque::new());
        for size in sizes.iter().chain(std::iter::repeat(&usize::MAX)) {
            if left.is_empty() {
                break;
            }
            pieces.push_back(left.split_to((*size).clamp(1, left.len())));
        }
        FrameReader::new(Self(pieces))
    }
}

impl Chunks for Pieces {
    async fn chunk(&mut self, _max: usize) -> Result<Option<Bytes>, FrameError> {
        Ok(self.0.pop_front())
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

proptest! {
    #[test]
    fn frames_survive_any_cutting(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
        raw in prop::collection::vec(any::<u8>(), 0..500),
        sizes in prop::collection::vec(1usize..70, 0..60),
    ) {
        let mut bytes = Vec::new();
        for value in &values {
            append(&mut bytes, value).unwrap();
        }
        bytes.extend(&raw);
        let mut reader = Pieces::cut(&bytes, &sizes);
        for value in &values {
            prop_assert_eq!(&run(reader.frame::<Vec<u8>>(1000)).unwrap(), value);
        }
        let (skipped, kept) = raw.split_at(raw.len() / 2);
        run(reader.skip(skipped.len() as u64)).unwrap();
        let mut rest = vec![0; kept.len()];
        run(reader.read_exact(&mut rest)).unwrap();
        prop_assert_eq!(rest, kept);
        prop_assert!(run(reader.frame_or_end::<u8>(10)).unwrap().is_none());
    }

    #[test]
    fn a_cut_stream_has_ended(
        value in prop::collection::vec(any::<u8>(), 0..100),
        cut in 1usize..104,
    ) {
        let mut bytes = Vec::new();
        append(&mut bytes, &value).unwrap();
        prop_assume!(cut < bytes.len());
        bytes.truncate(cut);
        let outcome = run(Pieces::cut(&bytes, &[]).frame_or_end::<Vec<u8>>(1000));
        prop_assert!(matches!(outcome, Err(FrameError::Ended)));
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_its_bytes() {
    let bytes = 1001u32.to_le_bytes();
    let outcome = run(Pieces::cut(&bytes, &[]).frame::<Vec<u8>>(1000));
    assert!(matches!(outcome, Err(FrameError::TooLong(1001, 1000))));
}

#[test]
fn raw_bytes_that_do_not_come_are_told() {
    let mut reader = Pieces::cut(&[1, 2, 3], &[]);
    assert!(matches!(run(reader.read_exact(&mut [0; 4])), Err(FrameError::Ended)));
    assert!(matches!(run(Pieces::cut(&[1], &[]).skip(2)), Err(FrameError::Ended)));
}

/// Any bytes, as the first frame of each protocol: an error or a value, never a panic.
#[test]
fn decoders_bear_any_bytes() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
        framed.extend(bytes);
        for input in [bytes.as_slice(), &framed] {
            let _ = run(Pieces::cut(input, &[7]).frame::<JoinRequest>(REQUEST_MAX));
            let _ = run(Pieces::cut(input, &[]).frame::<JoinAnswer>(FRAME_MAX));
            let _ = run(Pieces::cut(input, &[]).frame::<Hello>(FRAME_MAX));
            let _ = run(Pieces::cut(input, &[]).frame::<ServeAsk>(FRAME_MAX));
            let _ = run(Pieces::cut(input, &[]).frame::<ServeAnswer>(FRAME_MAX));
            let _ = run(Pieces::cut(input, &[]).frame::<BlocksRequest>(FRAME_MAX));
            let _ = run(Pieces::cut(input, &[]).frame::<BlockHead>(1024));
        }
    });
}
