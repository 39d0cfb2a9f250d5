//! TLS of the API listener: a certificate that is read again when it changes.

use crate::fault::Fault;
use crate::reread::{check_owner_only, watch};
use arc_swap::ArcSwap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

/// The certificate of now.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// A certificate chain and its key, in two PEM files.
pub(super) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    seen: blake3::Hash,
    current: Arc<Current>,
}

impl Certificate {
    /// Reads both files for the first time.
    ///
    /// # Errors
    /// One cannot be read, holds nothing of its kind, or they do not belong together; others may
    /// read the key.
    pub(super) fn open(chain: &Path, key: &Path) -> Result<Self, Fault> {
        let (seen, certified) = read(chain, key)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(certified)));
        Ok(Self { chain: chain.to_owned(), key: key.to_owned(), seen, current })
    }

    /// Accepts connections under it; HTTP/1.1 is all that is offered.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, Fault> {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Fault::new(error, "TLS cannot be set up"))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Keeps it up to date.
    pub(super) async fn watch(mut self, stop: CancellationToken) {
        let meaning = "the TLS certificate was not read again; the former stays in use";
        watch(stop, meaning, || self.look()).await;
    }

    fn look(&mut self) -> Result<(), Fault> {
        let (seen, certified) = read(&self.chain, &self.key)?;
        if seen != self.seen {
            self.current.0.store(Arc::new(certified));
            self.seen = seen;
            tracing::info!("TLS certificate read again");
        }
        Ok(())
    }
}

fn read(chain: &Path, key: &Path) -> Result<(blake3::Hash, CertifiedKey), Fault> {
    const HELP: &str = "http.tls_cert names a PEM file with the certificate and those it hangs on, \
                        http.tls_key one with its private key";
    check_owner_only(key, "the TLS key")?;
    let wrong = |path: &Path, why: String| Fault::new(format!("{}: {why}", path.display()), HELP);
    let mut hash = blake3::Hasher::new();
    let mut certificates = Vec::new();
    let found = CertificateDer::pem_file_iter(chain).map_err(|e| wrong(chain, e.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| wrong(chain, error.to_string()))?;
        hash.update(&certificate);
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(wrong(chain, "there is no certificate in it".into()));
    }
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error.to_string()))?;
    hash.update(secret.secret_der());
    let provider: CryptoProvider = ring::default_provider();
    let certified = CertifiedKey::from_der(certificates, secret, &provider)
        .map_err(|error| wrong(key, format!("it does not go with {}: {error}", chain.display())))?;
    Ok((hash.finalize(), certified))
}
