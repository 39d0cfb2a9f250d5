use super::*;
use proptest::prelude::*;

fn issuing() -> Keypair {
    Keypair::from_seed(&[9; 32])
}

fn fields() -> TokenFields {
    TokenFields {
        cluster: cluster_of(&issuing().node()),
        issuer: issuing().node(),
        serial: 7,
        expires: UnixTime(1_800_000_000),
        uses: 3,
        labels: vec![LABEL_ISSUER.into()],
        addresses: vec!["10.0.0.1:7600".into(), "[fe80::1]:7600".into()],
    }
}

fn token() -> JoinToken {
    JoinToken::issue(&issuing(), fields())
}

fn error(text: &str) -> Option<TokenError> {
    JoinToken::parse(text).err()
}

const EXPORTER: [u8; 32] = [4; 32];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_token_is_read_as_it_was_written(
        (seed, serial, expires, uses) in any::<([u8; 32], u64, u64, u32)>(),
        labels in prop::collection::vec(".{0,20}", 0..4),
        addresses in prop::collection::vec(".{0,40}", 0..4),
    ) {
        let issuing = Keypair::from_seed(&seed);
        let issuer = issuing.node();
        let cluster = cluster_of(&issuer);
        let expires = UnixTime(expires);
        let fields = TokenFields { cluster, issuer, serial, expires, uses, labels, addresses };
        let token = JoinToken::issue(&issuing, fields.clone());
        let read = JoinToken::parse(&format!("\t {}\n", *token.to_text())).unwrap();
        prop_assert_eq!(&read.fields, &fields);
        // The secret came along, and any holder of the issuing key derives it.
        for role in [JoinRole::Joiner, JoinRole::Member] {
            let proof = token.prove(role, &EXPORTER);
            prop_assert!(read.accepts(role, &EXPORTER, &proof));
            prop_assert!(JoinToken::issue(&issuing, fields.clone()).accepts(role, &EXPORTER, &proof));
        }
    }

    #[test]
    fn a_changed_digit_is_noticed(at in any::<prop::sample::Index>(), by in 1u32..16) {
        let text = token().to_text();
        let at = 4 + at.index(text.len() - 4);
        let digit = text[at..=at].parse::<char>().unwrap().to_digit(16).unwrap();
        let other = char::from_digit((digit + by) % 16, 16).unwrap();
        let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        prop_assert_eq!(error(&changed), Some(TokenError::Damaged));
    }

    #[test]
    fn any_text_is_borne(text in "(dn1-)?.{0,100}", hex in "dn1-[0-9a-f]{0,100}") {
        prop_assert!(error(&text).is_some());
        prop_assert!(error(&hex).is_some());
    }

    #[test]
    fn a_changed_certificate_is_not_valid(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let cert = cert();
        let mut bytes = crate::wire::encode(&cert).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(changed) = crate::wire::decode::<MemberCert>(&bytes) {
            prop_assert_ne!(&changed, &cert);
            prop_assert!(!changed.is_valid(&issuing().node(), cert.cluster, NOW));
        }
    }
}

#[test]
fn every_truncation_of_a_token_is_noticed() {
    let text = token().to_text();
    for length in 0..text.len() {
        assert!(error(&text[..length]).is_some(), "{length}");
    }
    assert_eq!(error(&text), None);
    assert_eq!(error(&text.to_uppercase().replace("DN1-", "dn1-")), None);
}

#[test]
fn what_is_no_token_is_told_apart_from_a_damaged_one() {
    let text = token().to_text();
    for malformed in [
        "",
        "dn1",
        "dn1-0",
        "dn1-0g",
        "dn1-+0",
        "dn1-ß",
        "DN1-00",
        "dn2-00",
        &text[4..],
        &format!("{}\n{}", *text, *text),
        &format!("dn1-{}", "00".repeat(4097)),
    ] {
        assert_eq!(error(malformed), Some(TokenError::Malformed), "{malformed:?}");
    }
    for damaged in ["dn1-", "dn1-00", "dn1-00000000", &format!("{}00", *text)] {
        assert_eq!(error(damaged), Some(TokenError::Damaged), "{damaged:?}");
    }
}

/// The check value is right, but what it covers is no token.
#[test]
fn a_well_checked_nonsense_is_damaged() {
    let with_check = |body: &[u8]| {
        let check = blake3::hash(body);
        let bytes = [body, &check.as_bytes()[..4]].concat();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("dn1-{hex}")
    };
    let fields = crate::wire::encode(&fields()).unwrap();
    assert_eq!(error(&with_check(&[&[0; 32], fields.as_slice()].concat())), None);
    let longer = [&[0; 32], fields.as_slice(), &[0]].concat();
    for body in [&[][..], &[0; 31], &[0; 32], &longer] {
        assert_eq!(error(&with_check(body)), Some(TokenError::Damaged), "{}", body.len());
    }
}

#[test]
fn proofs_are_bound_to_token_role_and_session() {
    let token = token();
    let proof = token.prove(JoinRole::Joiner, &EXPORTER);
    assert!(token.accepts(JoinRole::Joiner, &EXPORTER, &proof));
    // An echo of the joiner's proof is not the member's.
    assert!(!token.accepts(JoinRole::Member, &EXPORTER, &proof));
    assert!(!token.accepts(JoinRole::Joiner, &[5; 32], &proof));
    assert!(!token.accepts(JoinRole::Joiner, &EXPORTER, &[0; 32]));
    let mut changed = proof;
    changed[31] ^= 1;
    assert!(!token.accepts(JoinRole::Joiner, &EXPORTER, &changed));

    type Change = fn(&mut TokenFields);
    let changes: [Change; 7] = [
        |f| f.cluster.0[0] ^= 1,
        |f| f.issuer.0[0] ^= 1,
        |f| f.serial += 1,
        |f| f.expires.0 += 1,
        |f| f.uses += 1,
        |f| f.labels.clear(),
        |f| f.addresses.truncate(1),
    ];
    for (at, change) in changes.iter().enumerate() {
        // A joiner that asks for more than the token gives proves another secret.
        let mut asked = fields();
        change(&mut asked);
        let checked = JoinToken::issue(&issuing(), asked);
        assert!(!checked.accepts(JoinRole::Joiner, &EXPORTER, &proof), "{at}");
    }
    let stranger = JoinToken::issue(&Keypair::from_seed(&[8; 32]), fields());
    assert!(!stranger.accepts(JoinRole::Joiner, &EXPORTER, &proof));
}

/// The layouts of docs/formats.md, put together by hand.
#[test]
fn secret_text_and_proof_follow_the_documented_layout() {
    let fields = crate::wire::encode(&fields()).unwrap();
    let mut secret = blake3::Hasher::new_derive_key("dynamo-node 2026-11 join token");
    let secret = *secret.update(&[9; 32]).update(&fields).finalize().as_bytes();

    let mut bytes = [secret.as_slice(), &fields].concat();
    let check = blake3::hash(&bytes);
    bytes.extend(&check.as_bytes()[..4]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(*token().to_text(), format!("dn1-{hex}"));

    for (role, name) in [(JoinRole::Joiner, b"joiner"), (JoinRole::Member, b"member")] {
        let proof = blake3::keyed_hash(&secret, &[name.as_slice(), &EXPORTER].concat());
        assert_eq!(token().prove(role, &EXPORTER), *proof.as_bytes());
    }
}

#[test]
fn the_secret_is_never_printed() {
    let text = format!("{:?}", token());
    assert_eq!(text, "JoinToken { serial: 7, secret: … }");
}

const NOW: UnixTime = UnixTime(1_700_000_000);

fn cert() -> MemberCert {
    let node = Keypair::from_seed(&[1; 32]).node();
    let cluster = cluster_of(&issuing().node());
    MemberCert::issue(&issuing(), cluster, node, vec![LABEL_ISSUER.into()], NOW)
}

#[test]
fn a_certificate_is_valid_for_a_week() {
    let (cert, issuer) = (cert(), issuing().node());
    assert_eq!(cert.expires.0 - cert.issued.0, 7 * 86_400);
    for (now, valid) in [
        (NOW, true),
        (UnixTime(NOW.0 + CERT_SECONDS), true),
        (UnixTime(NOW.0 + CERT_SECONDS + 1), false),
        (UnixTime(u64::MAX), false),
        // A clock that is behind does not keep a member out.
        (UnixTime(NOW.0 - 60), true),
    ] {
        assert_eq!(cert.is_valid(&issuer, cert.cluster, now), valid, "{now:?}");
    }
    let last = MemberCert::issue(&issuing(), cert.cluster, cert.node, vec![], UnixTime(u64::MAX));
    assert_eq!(last.expires, UnixTime(u64::MAX));
}

#[test]
fn a_certificate_belongs_to_its_issuer_cluster_and_node() {
    let (cert, issuer) = (cert(), issuing().node());
    let valid = |cert: &MemberCert| cert.is_valid(&issuer, cert.cluster, NOW);
    assert!(valid(&cert));
    let stranger = Keypair::from_seed(&[8; 32]);
    assert!(!cert.is_valid(&stranger.node(), cert.cluster, NOW));
    assert!(!cert.is_valid(&issuer, ClusterId([0; 16]), NOW));
    // Everything it says is signed.
    assert!(!valid(&MemberCert { cluster: ClusterId([0; 16]), ..cert.clone() }));
    assert!(!valid(&MemberCert { node: stranger.node(), ..cert.clone() }));
    assert!(!valid(&MemberCert { issued: UnixTime(NOW.0 + 1), ..cert.clone() }));
    assert!(!valid(&MemberCert { expires: UnixTime(u64::MAX), ..cert.clone() }));
    assert!(!valid(&MemberCert { labels: Vec::new(), ..cert.clone() }));
    let forged = MemberCert::issue(&stranger, cert.cluster, cert.node, cert.labels, NOW);
    assert!(!valid(&forged));
}

#[test]
fn a_cluster_is_named_by_its_issuer() {
    let mut hasher = blake3::Hasher::new_derive_key("dynamo-node 2026-11 cluster id");
    let whole = *hasher.update(&issuing().node().0).finalize().as_bytes();
    assert_eq!(cluster_of(&issuing().node()).0, whole[..16]);
    assert_ne!(cluster_of(&issuing().node()), cluster_of(&Keypair::from_seed(&[8; 32]).node()));
}
