//! A QUIC client without manners: any key, any protocol, believes every server.

use protocol::sign::Keypair;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

fn credentials(keypair: &Keypair) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut pkcs8 = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    pkcs8.extend(keypair.seed());
    let pkcs8 = PrivatePkcs8KeyDer::from(pkcs8);
    let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &rcgen::PKCS_ED25519).unwrap();
    let params = rcgen::CertificateParams::new(["x".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().der().clone(), pkcs8.into())
}

/// Connects as `keypair` (or without a certificate), offering `protocols`.
pub(crate) async fn connect(
    keypair: Option<&Keypair>,
    protocols: &[&[u8]],
    addr: SocketAddr,
) -> Result<Connection, String> {
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    let mut tls = match keypair {
        None => builder.with_no_client_auth(),
        Some(keypair) => {
            let (certificate, key) = credentials(keypair);
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let crypto = QuicClientConfig::try_from(tls).unwrap();
    let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint.connect_with(config, addr, "x").map_err(|e| e.to_string())?;
    connecting.await.map_err(|e| e.to_string())
}

/// A server under `keypair` that takes anyone, for protocols `protocols`.
pub(crate) fn server(keypair: &Keypair, protocols: &[&[u8]]) -> Endpoint {
    let (certificate, key) = credentials(keypair);
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let crypto = QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// A frame as the protocols write it.
pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// Reads one frame's body.
pub(crate) async fn read_frame(recv: &mut quinn::RecvStream) -> Result<Vec<u8>, String> {
    let mut length = [0u8; 4];
    recv.read_exact(&mut length).await.map_err(|e| e.to_string())?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    recv.read_exact(&mut body).await.map_err(|e| e.to_string())?;
    Ok(body)
}
