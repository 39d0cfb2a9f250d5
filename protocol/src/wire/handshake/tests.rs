use super::*;
use crate::sign::Keypair;
use crate::trust::{MemberCert, UnixTime, cluster_of};

fn hello(version: u16, version_min: u16) -> Hello {
    let issuing = Keypair::from_seed(&[9; 32]);
    let node = Keypair::from_seed(&[1; 32]).node();
    let cluster = cluster_of(&issuing.node());
    Hello {
        version,
        version_min,
        hash_version: 1,
        cluster,
        node,
        incarnation: Incarnation { counter: 1, nonce: 2 },
        cert: MemberCert::issue(&issuing, cluster, node, Vec::new(), UnixTime(0)),
        contact: Contact::default(),
    }
}

#[test]
fn the_newest_common_version_is_spoken() {
    // (ours newest, ours oldest), (theirs newest, theirs oldest), agreed
    let table = [
        ((1, 1), (1, 1), Some(1)),
        ((2, 1), (1, 1), Some(1)),
        ((2, 1), (2, 1), Some(2)),
        ((3, 2), (2, 1), Some(2)),
        ((3, 2), (4, 3), Some(3)),
        ((5, 1), (3, 2), Some(3)),
        ((2, 2), (1, 1), None),
        ((4, 3), (2, 1), None),
        // Nonsense agrees on nothing.
        ((1, 2), (1, 1), None),
        ((0, 0), (1, 1), None),
    ];
    for ((newest, oldest), (their_newest, their_oldest), agreed) in table {
        let (ours, theirs) = (hello(newest, oldest), hello(their_newest, their_oldest));
        let mismatch = |ours, theirs| Mismatch::Version { ours, theirs };
        let case = format!("{newest}..{oldest} and {their_newest}..{their_oldest}");
        assert_eq!(ours.agree(&theirs), agreed.ok_or(mismatch(newest, their_newest)), "{case}");
        assert_eq!(theirs.agree(&ours), agreed.ok_or(mismatch(their_newest, newest)), "{case}");
    }
}

#[test]
fn this_build_speaks_with_itself() {
    let build = hello(VERSION, VERSION_MIN);
    assert_eq!(build.agree(&build), Ok(VERSION));
}

#[test]
fn the_differing_field_is_named() {
    let ours = hello(1, 1);
    let stranger = Hello { cluster: ClusterId([0; 16]), hash_version: 2, ..hello(2, 2) };
    assert_eq!(ours.agree(&stranger), Err(Mismatch::Cluster));
    let hashes = Hello { hash_version: 2, ..hello(2, 2) };
    assert_eq!(ours.agree(&hashes), Err(Mismatch::HashVersion { ours: 1, theirs: 2 }));
    assert_eq!(ours.agree(&hello(2, 2)), Err(Mismatch::Version { ours: 1, theirs: 2 }));
    for (mismatch, field) in [
        (Mismatch::Cluster, "`cluster`"),
        (Mismatch::HashVersion { ours: 1, theirs: 2 }, "`hash_version`): ours 1, theirs 2"),
        (Mismatch::Version { ours: 1, theirs: 2 }, "`version`): ours 1, theirs 2"),
    ] {
        assert!(mismatch.to_string().contains(field), "{mismatch}");
    }
}
