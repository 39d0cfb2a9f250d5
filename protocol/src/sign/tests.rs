use super::*;
use proptest::prelude::*;

fn any_keypair() -> impl Strategy<Value = Keypair> {
    any::<[u8; 32]>().prop_map(|seed| Keypair::from_seed(&seed))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_signature_holds_for_its_signer_and_bytes_only(
        signer in any_keypair(),
        other in any_keypair(),
        bytes in prop::collection::vec(any::<u8>(), 1..100),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let signature = signer.sign(&bytes);
        prop_assert!(signature.verify(&signer.node(), &bytes));
        prop_assert_eq!(signature.verify(&other.node(), &bytes), other.node() == signer.node());
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= flip;
        prop_assert!(!signature.verify(&signer.node(), &changed));
        prop_assert!(!signature.verify(&signer.node(), &bytes[1..]));
    }

    #[test]
    fn a_changed_signature_does_not_hold(
        signer in any_keypair(),
        at in 0usize..64,
        flip in 1u8..,
    ) {
        let mut raw = crate::wire::encode(&signer.sign(b"words")).unwrap();
        prop_assert_eq!(raw.len(), 64);
        raw[at] ^= flip;
        let changed: Signature = crate::wire::decode(&raw).unwrap();
        prop_assert!(!changed.verify(&signer.node(), b"words"));
    }

    /// Any 32 bytes may arrive as a node id, also such that are no point of the curve.
    #[test]
    fn ids_that_are_no_keys_verify_nothing(id: [u8; 32]) {
        prop_assert!(!Keypair::from_seed(&[1; 32]).sign(b"words").verify(&NodeId(id), b"words"));
    }
}

#[test]
fn weak_keys_verify_nothing() {
    // The neutral element as a key makes a lax verification accept R = S·B for any message.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut raw = [0; 64];
    raw[0] = 1;
    let signature: Signature = crate::wire::decode(&raw).unwrap();
    assert!(!signature.verify(&NodeId(neutral), b"words"));
}

#[test]
fn seeds_come_back_and_are_never_printed() {
    let keypair = Keypair::from_seed(&[7; 32]);
    assert_eq!(keypair.seed(), [7; 32]);
    let again = Keypair::from_seed(&keypair.seed());
    assert_eq!(again.node(), keypair.node());
    assert_eq!(again.sign(b"words"), keypair.sign(b"words"));
    assert_eq!(format!("{keypair:?}"), format!("Keypair({:?})", keypair.node()));
    assert_eq!(format!("{:?}", keypair.sign(b"words")), "Signature(…)");
}

/// RFC 8032 §7.1, test 2: the signatures are those of any ed25519.
#[test]
fn signatures_are_ed25519() {
    let seed = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
    let keypair = Keypair::from_seed(&crate::id::parse_hex(seed).unwrap());
    let public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    assert_eq!(keypair.node().to_string(), public);
    let signature = crate::wire::encode(&keypair.sign(&[0x72])).unwrap();
    let hex: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
         085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    );
}
