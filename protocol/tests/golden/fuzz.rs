//! What decoders make of bytes that no honest encoder wrote.

use crate::cases::{Case, Recode, all};
use proptest::prelude::*;
use protocol::event::{EventRun, Holder};
use protocol::hash::{PrefixHash, Token};
use protocol::id::EngineId;
use protocol::trust::TokenFields;
use protocol::wire::gossip::{Direct, Published};
use protocol::wire::handshake::Hello;
use protocol::wire::join::{JoinAnswer, JoinRequest};
use protocol::wire::serve::{ServeAnswer, ServeAsk};
use protocol::wire::{FRAME_MAX, decode, encode};
use std::process::Command;

fn readable() -> Vec<(Case, Recode)> {
    all().into_iter().filter_map(|case| case.recode.map(|recode| (case, recode))).collect()
}

/// What must hold of any bytes: an error, or a value whose own encoding is no longer and means
/// itself.
fn check(recode: Recode, bytes: &[u8]) {
    if let Ok(again) = recode(bytes) {
        assert!(again.len() <= bytes.len());
        assert_eq!(recode(&again).as_ref(), Ok(&again));
    }
}

/// Damages a frame as `choices` say: flips, cuts, repeats, and lengths that claim too much.
fn mutate(bytes: &mut Vec<u8>, choices: &[u8]) {
    for choice in choices.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([choice[1], choice[2]])) % (bytes.len() + 1);
        let with = choice[3];
        match choice[0] % 8 {
            0..=2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = with),
            3 => bytes.insert(at, with),
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..(at + usize::from(with)).min(bytes.len()))),
            6 => {
                let piece: Vec<u8> = bytes[at..].iter().copied().take(with.into()).collect();
                bytes.splice(at..at, piece);
            }
            _ => {
                // A number of any width in the place of one byte: 2^5 … 2^63, or the largest.
                let n = u64::MAX.checked_shr(u32::from(with) % 60).unwrap_or(1) / 2 + 1;
                let end = (at + 1).min(bytes.len());
                bytes.splice(at..end, encode(&n).unwrap());
            }
        }
    }
}

mod bounded {
    //! These run a second time in a process with little memory.

    use super::*;

    #[test]
    fn any_bytes_are_borne() {
        let cases = readable();
        bolero::check!().with_iterations(400).with_max_len(512).for_each(|bytes: &[u8]| {
            cases.iter().for_each(|(_, recode)| check(*recode, bytes));
        });
    }

    #[test]
    fn damaged_frames_are_borne() {
        let cases = readable();
        bolero::check!().with_iterations(4000).with_max_len(33).for_each(|choices: &[u8]| {
            let Some((which, choices)) = choices.split_first() else { return };
            let (case, recode) = &cases[usize::from(*which) % cases.len()];
            let mut bytes = case.bytes.clone();
            mutate(&mut bytes, choices);
            check(*recode, &bytes);
        });
    }

    /// In the place of each byte a length that no frame of this size can have.
    #[test]
    fn no_length_is_believed() {
        for (case, recode) in readable() {
            for claimed in [FRAME_MAX as u64, 1 << 30, 1 << 40, u64::MAX] {
                for at in 0..case.bytes.len() {
                    let mut bytes = case.bytes.clone();
                    bytes.splice(at..=at, encode(&claimed).unwrap());
                    check(recode, &bytes);
                }
            }
        }
    }

    /// The smallest elements that a list can have, as many as a frame can carry.
    #[test]
    fn full_frames_of_small_elements_stay_bounded() {
        let frames = |element: &[u8]| {
            let n = (FRAME_MAX - 16) / element.len();
            [encode(&(n as u64)).unwrap(), element.repeat(n)].concat()
        };
        assert!(decode::<Vec<Direct>>(&frames(&[1, 0])).is_err());
        assert!(decode::<Vec<EventRun>>(&frames(&[2, 1])).is_err());
        assert!(decode::<Vec<String>>(&frames(&[0])).is_err());
        assert!(decode::<Vec<Token>>(&frames(&[0])).is_err());
    }
}

/// No decoder reserves memory for what is only claimed: the tests above pass as well in a process
/// that may have 256 MiB of address space, binary, stacks and allocator included.
#[test]
#[cfg(target_os = "linux")]
fn decoders_need_little_memory() {
    let test = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 262144 && exec \"$0\" fuzz::bounded --test-threads 1"])
        .arg(test)
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{errors}");
    assert!(told.contains("4 passed"), "{told}");
}

#[test]
fn cut_and_lengthened_frames_are_refused() {
    for (case, recode) in readable() {
        for cut in 0..case.bytes.len() {
            assert!(recode(&case.bytes[..cut]).is_err(), "{} at {cut}", case.name);
        }
        assert!(recode(&[case.bytes.as_slice(), &[0]].concat()).is_err(), "{}", case.name);
    }
}

/// A frame of one protocol means nothing in another: no confusion of streams goes unnoticed.
#[test]
fn frames_of_other_protocols_are_refused() {
    let bytes = |name: &str| {
        all().into_iter().find(|case| case.name == name).map(|case| case.bytes).unwrap()
    };
    assert!(decode::<JoinRequest>(&bytes("handshake-hello")).is_err());
    assert!(decode::<Hello>(&bytes("join-request")).is_err());
    assert!(decode::<JoinAnswer>(&bytes("serve-request")).is_err());
    assert!(decode::<ServeAsk>(&bytes("blocks-request")).is_err());
    assert!(decode::<ServeAnswer>(&bytes("gossip-direct-0-hello")).is_err());
    assert!(decode::<Published>(&bytes("gossip-direct-2-batches")).is_err());
    assert!(decode::<TokenFields>(&bytes("trust-member-cert")).is_err());
}

fn any_holder() -> impl Strategy<Value = Holder> {
    prop_oneof![
        any::<u16>().prop_map(|engine| Holder::Engine(EngineId(engine))),
        Just(Holder::Dram),
        Just(Holder::Nvme),
        any::<u16>().prop_map(|engine| Holder::Computing(EngineId(engine))),
    ]
}

fn any_run() -> impl Strategy<Value = EventRun> {
    let hashes = prop::collection::vec(any::<u128>().prop_map(PrefixHash), 0..20);
    (any_holder(), any::<u64>(), any::<u32>(), hashes, 0u8..3).prop_map(
        |(holder, storage, first, hashes, kind)| {
            let storage = protocol::block::StorageId(storage);
            match kind {
                0 => EventRun::Stored { storage, holder, first, hashes },
                1 => EventRun::Removed { storage, holder, first, hashes },
                _ => EventRun::Cleared { holder },
            }
        },
    )
}

proptest! {
    #[test]
    fn runs_come_back(runs in prop::collection::vec(any_run(), 0..12)) {
        let bytes = encode(&runs).unwrap();
        prop_assert_eq!(decode::<Vec<EventRun>>(&bytes), Ok(runs));
    }

    #[test]
    fn requests_come_back(
        tokens in prop::collection::vec(any::<u32>().prop_map(Token), 0..200),
        prefix in prop::collection::vec(any::<u128>().prop_map(PrefixHash), 0..12),
        (priority, osl, seed, id) in any::<(i32, Option<u32>, u64, u128)>(),
        (model, outcome) in (".{0,40}", ".{0,40}"),
    ) {
        let mut request = crate::serve::request();
        request.prompt.tokens = tokens.into();
        request.prompt.prefix = prefix.into();
        request.prompt.hints.priority = priority;
        request.prompt.hints.osl = osl;
        request.prompt.sampling.seed = seed;
        request.prompt.id = protocol::id::RequestId(id);
        request.prompt.model = model;
        request.placed.outcome = outcome;
        let ask = ServeAsk { beginning: crate::serve::short().beginning, keep_as: None, request };
        let bytes = encode(&ask).unwrap();
        prop_assert_eq!(decode::<ServeAsk>(&bytes), Ok(ask));
    }
}
