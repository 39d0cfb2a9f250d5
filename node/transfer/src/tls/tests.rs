use super::{Identity, node_of};
use proptest::prelude::*;
use protocol::sign::Keypair;
use rustls::pki_types::CertificateDer;

#[test]
fn a_certificate_carries_its_node() {
    let keypair = Keypair::from_seed(&[5; 32]);
    let identity = Identity::new(&keypair).unwrap();
    assert_eq!(node_of(&identity.key.cert[0]), Some(keypair.node()));
}

#[test]
fn other_kinds_of_keys_are_nobody() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let params = rcgen::CertificateParams::new(["x".to_owned()]).unwrap();
    assert_eq!(node_of(params.self_signed(&key).unwrap().der()), None);
}

proptest! {
    #[test]
    fn damaged_certificates_never_panic(at in 0usize..400, byte: u8, cut in 0usize..400) {
        let identity = Identity::new(&Keypair::from_seed(&[5; 32])).unwrap();
        let mut der = identity.key.cert[0].to_vec();
        let at = at % der.len();
        der[at] = byte;
        der.truncate(der.len().saturating_sub(cut));
        let _ = node_of(&CertificateDer::from(der));
    }
}
