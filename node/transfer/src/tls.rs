//! TLS 1.3 by ed25519 identities: a peer's certificate is only a wrapper of its public key, which
//! is its [`NodeId`]. Who may come in is asked inside the handshake.

use crate::alpn::Alpn;
use crate::host::Host;
use protocol::id::NodeId;
use protocol::sign::Keypair;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
};
use std::fmt;
use std::sync::{Arc, OnceLock};
use x509_parser::oid_registry::OID_SIG_ED25519;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// The name in every certificate and handshake; says nothing and is not checked.
pub(crate) const SERVER_NAME: &str = "dynamo-node";

/// DER of an ed25519 private key in PKCS#8 version 1 (RFC 8410), up to the 32 secret bytes.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The node's key as TLS needs it.
pub(crate) struct Identity {
    provider: Arc<CryptoProvider>,
    key: Arc<CertifiedKey>,
}

impl Identity {
    /// Wraps `keypair` in a self-signed certificate. Errors tell what the libraries said.
    pub(crate) fn new(keypair: &Keypair) -> Result<Self, String> {
        let mut pkcs8 = Zeroizing::new(PKCS8_ED25519.to_vec());
        pkcs8.extend(Zeroizing::new(keypair.seed()).iter());
        let pkcs8 = PrivatePkcs8KeyDer::from(pkcs8.as_slice());
        let signing = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &rcgen::PKCS_ED25519)
            .map_err(|e| e.to_string())?;
        let certificate = rcgen::CertificateParams::new([SERVER_NAME.to_owned()])
            .and_then(|params| params.self_signed(&signing))
            .map_err(|e| e.to_string())?;
        let key = ring::sign::any_eddsa_type(&pkcs8).map_err(|e| e.to_string())?;
        let key = Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key));
        Ok(Self { provider: Arc::new(provider()), key })
    }

    /// For one connection out. Sessions are never resumed: resumption would skip the question who
    /// is a member.
    pub(crate) fn client(&self, alpn: Alpn, rule: Rule) -> Result<rustls::ClientConfig, Error> {
        let key = Arc::new(SingleCertAndKey::from(Arc::clone(&self.key)));
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.verifier(rule)))
            .with_client_cert_resolver(key);
        config.alpn_protocols = vec![alpn.name().to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// For one connection in: its verifier lets a stranger pass when, and only when, the stranger
    /// offered nothing but the join.
    pub(crate) fn server(&self, host: &Arc<dyn Host>) -> Result<rustls::ServerConfig, Error> {
        let joins = Arc::new(OnceLock::new());
        let rule = Rule::Served { joins: Arc::clone(&joins), host: Arc::clone(host) };
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(self.verifier(rule)))
            .with_cert_resolver(Arc::new(Door { key: Arc::clone(&self.key), joins }));
        config.alpn_protocols = Alpn::ALL.iter().map(|alpn| alpn.name().to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn verifier(&self, rule: Rule) -> Verifier {
        Verifier { algorithms: self.provider.signature_verification_algorithms, rule }
    }
}

/// ring, TLS 1.3 only, the cheaper AES first.
fn provider() -> CryptoProvider {
    let cipher_suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

/// The node whose key `certificate` carries, or `None` when it is no ed25519 key.
pub(crate) fn node_of(certificate: &CertificateDer<'_>) -> Option<NodeId> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let key = certificate.public_key();
    if key.algorithm.algorithm != OID_SIG_ED25519 {
        return None;
    }
    Some(NodeId(key.subject_public_key.data.as_ref().try_into().ok()?))
}

/// The node at the other end of an established connection.
pub(crate) fn peer_of(connection: &quinn::Connection) -> Option<NodeId> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    node_of(chain.first()?)
}

/// Who may be at the other end.
pub(crate) enum Rule {
    /// Anyone: what it says is checked by other means (the join's proofs).
    Anyone,
    /// This member.
    Member {
        /// Who.
        node: NodeId,
        /// Knows whether it still is one.
        host: Arc<dyn Host>,
    },
    /// A member; or anyone who only wants to join.
    Served {
        /// Set by [`Door`] when it has seen what the client offers.
        joins: Arc<OnceLock<bool>>,
        /// Knows the members.
        host: Arc<dyn Host>,
    },
}

/// Why the handshake refuses a peer whose key was proven.
#[derive(Debug)]
struct Refused(&'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Refused {}

fn refused(why: &'static str) -> Error {
    CertificateError::Other(OtherError(Arc::new(Refused(why)))).into()
}

/// Sees the client's offer first, and shows the node's certificate.
struct Door {
    key: Arc<CertifiedKey>,
    joins: Arc<OnceLock<bool>>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

impl ResolvesServerCert for Door {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let joins = hello.alpn().is_some_and(|mut offered| {
            offered.next() == Some(Alpn::Join.name()) && offered.next().is_none()
        });
        self.joins.set(joins).ok()?;
        Some(Arc::clone(&self.key))
    }
}

/// Checks the certificate by a [`Rule`]; the proof of possession is rustls's work.
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    rule: Rule,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl Verifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let peer = node_of(certificate).ok_or(CertificateError::BadEncoding)?;
        match &self.rule {
            Rule::Anyone => Ok(()),
            Rule::Member { node, .. } if *node != peer => Err(refused("another node answers here")),
            Rule::Member { host, .. } if host.is_member(&peer) => Ok(()),
            Rule::Served { joins, .. } if joins.get() == Some(&true) => Ok(()),
            Rule::Served { host, .. } if host.is_member(&peer) => Ok(()),
            Rule::Member { .. } | Rule::Served { .. } => Err(refused("not a member")),
        }
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

#[cfg(test)]
mod tests;
