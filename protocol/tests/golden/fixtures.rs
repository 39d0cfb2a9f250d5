//! The files beside the values.

use crate::cases::{Case, all};
use crate::values::{bob, cert, issuing, token};
use protocol::trust::{JoinToken, MemberCert, UnixTime};
use protocol::wire::decode;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Bytes in one line of a file.
const LINE: usize = 32;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn file(case: &Case) -> PathBuf {
    folder().join(format!("{}.hex", case.name))
}

fn to_text(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n";
    bytes.chunks(LINE).map(line).collect()
}

fn from_text(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn read(case: &Case) -> Option<Vec<u8>> {
    std::fs::read_to_string(file(case)).ok().map(|text| from_text(&text))
}

/// Writes what is asked for; see the top of this binary.
#[allow(clippy::disallowed_methods)] // the environment is how a person asks for it
fn write(cases: &[Case]) {
    let Ok(which) = std::env::var("DYNAMO_WRITE_FIXTURES") else { return };
    assert!(["missing", "all"].contains(&which.as_str()), "write which? `missing` or `all`");
    for case in cases {
        let there = read(case);
        if there.is_none() || (which == "all" && there.as_ref() != Some(&case.bytes)) {
            std::fs::write(file(case), to_text(&case.bytes)).unwrap();
        }
    }
    panic!("fixtures are written: look at the difference, then run without DYNAMO_WRITE_FIXTURES");
}

#[test]
fn frames_have_their_golden_bytes() {
    let cases = all();
    write(&cases);
    let mut wrong = Vec::new();
    for case in &cases {
        match read(case) {
            None => wrong.push(format!("{} has no fixture", case.name)),
            Some(bytes) if bytes != case.bytes => {
                wrong.push(format!("{} is now\n{}", case.name, to_text(&case.bytes)));
            }
            Some(bytes) => {
                let again = case.recode.map(|recode| recode(&bytes));
                assert_eq!(again.unwrap_or(Ok(bytes.clone())), Ok(bytes), "{}", case.name);
            }
        }
    }
    assert!(wrong.is_empty(), "the format has changed:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_belongs_to_one_value() {
    let cases = all();
    let names: BTreeSet<PathBuf> = cases.iter().map(file).collect();
    assert_eq!(names.len(), cases.len(), "two values have one name");
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

/// Signatures and proofs in the files hold: they were not only copied.
#[test]
fn golden_signatures_hold() {
    let golden = |name: &str| {
        let text = std::fs::read_to_string(folder().join(format!("{name}.hex"))).unwrap();
        from_text(&text)
    };
    let member: MemberCert = decode(&golden("trust-member-cert")).unwrap();
    let expected = cert(bob());
    assert!(member.is_valid(&issuing().node(), expected.cluster, UnixTime(1_790_000_000)));

    let digest: protocol::block::SignedDigest = decode(&golden("block-signed-digest")).unwrap();
    assert!(digest.covers(&crate::values::key(1), b"the bytes of a block"));
    assert!(digest.signature.verify(&digest.producer, &golden("signed-block-digest")));
    let batch = crate::values::batch();
    assert!(batch.signature.verify(&batch.origin, &golden("signed-event-batch")));
    let beat = crate::values::heartbeat();
    assert!(beat.signature.verify(&beat.node, &golden("signed-heartbeat")));

    let text = String::from_utf8(golden("trust-token-text")).unwrap();
    assert_eq!(JoinToken::parse(&text).unwrap().fields, token().fields);
}
