//! Encrypted connections: whom to trust, how to prove who we are, and what a failure means.
//!
//! The settings are made once for a client, so that the machine's certificates are read once and a
//! connection that is opened again can resume its session.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, InvalidMessage, RootCertStore,
};

use crate::backend::{StoreError, StoreErrorKind, StoreResult};

/// Certificates and keys as the user gave them, in PEM.
#[derive(Clone, Default)]
pub(crate) struct Pem {
    /// Whom to trust instead of whom the machine trusts.
    pub(crate) root: Option<Arc<[u8]>>,
    pub(crate) client: Option<ClientPem>,
}

/// Who we are.
#[derive(Clone)]
pub(crate) struct ClientPem {
    pub(crate) chain: Arc<[u8]>,
    pub(crate) key: Arc<[u8]>,
}

/// What every encrypted connection of a client shares.
#[derive(Clone, Debug)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Pem {
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none() && self.client.is_none()
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem")
            .field("root", &self.root.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}

impl Tls {
    pub(super) fn new(pem: &Pem) -> StoreResult<Self> {
        let roots = match &pem.root {
            Some(pem) => private_roots(pem)?,
            None => machine_roots()?,
        };
        // The program's own choice, where it made one; nothing is installed for the program.
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS cannot be used", &error))?
            .with_root_certificates(roots);
        let config = match &pem.client {
            None => config.with_no_client_auth(),
            Some(ClientPem { chain, key }) => {
                let chain = certificates(chain, "tls_client_cert")?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
                    unusable("tls_client_cert has no private key in PEM", &error)
                })?;
                config.with_client_auth_cert(chain, key).map_err(|error| {
                    unusable("certificate and key of tls_client_cert do not go together", &error)
                })?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    pub(super) async fn connect(
        &self,
        host: &str,
        port: u16,
        settings: &TcpSettings,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let text = format!("{host:?} is neither a host name nor an address");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(settings.nodelay())?;
        if let Some(keepalive) = settings.keepalive() {
            SockRef::from(&stream).set_tcp_keepalive(keepalive)?;
        }
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }
}

fn private_roots(pem: &[u8]) -> StoreResult<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "tls_root_cert")? {
        roots.add(certificate).map_err(|error| {
            unusable("tls_root_cert has a certificate that nothing can be checked by", &error)
        })?;
    }
    Ok(roots)
}

/// The machine's own, as other programs there use them.
fn machine_roots() -> StoreResult<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One that is broken must not spoil the others.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        let reasons = reasons.join(", ");
        let text = format!(
            "this machine has no certificates to check a server by ({reasons}): install them (a \
             package such as ca-certificates), or give your CA by the builder's tls_root_cert"
        );
        return Err(StoreError::new(StoreErrorKind::Refused, text));
    }
    Ok(roots)
}

fn certificates(pem: &[u8], setting: &str) -> StoreResult<Vec<CertificateDer<'static>>> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|error| unusable(&format!("{setting} is no PEM"), &error))?;
    if parsed.is_empty() {
        let text = format!("{setting} has no certificate: -----BEGIN CERTIFICATE----- is expected");
        return Err(StoreError::new(StoreErrorKind::Refused, text));
    }
    Ok(parsed)
}

fn unusable(what: &str, error: &dyn fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, format!("{what}: {error}"))
}

/// Says what a failure of encryption means at the server at `address`; `None` if it is another one.
pub(super) fn explain(error: &RedisError, address: &str) -> Option<StoreError> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage as Garbled};

    let error = cause(error)?;
    let text = match error {
        InvalidCertificate(CertificateError::UnknownIssuer) => format!(
            "the certificate of redis at {address} comes from an issuer that is not trusted here: \
             give your CA by the builder's tls_root_cert"
        ),
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "the certificate of redis at {address} is for another host ({error}): write a name or \
             address that stands in the certificate into the URL"
        ),
        InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => format!(
            "the certificate of redis at {address} is not valid today ({error}): renew it, or look \
             at this machine's clock"
        ),
        InvalidCertificate(_) => {
            format!("the certificate of redis at {address} cannot be accepted: {error}")
        }
        AlertReceived(AlertDescription::CertificateRequired) => format!(
            "redis at {address} asks for a client certificate: give one by the builder's \
             tls_client_cert"
        ),
        AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied,
        ) => format!(
            "redis at {address} does not accept our client certificate ({error}): see the \
             builder's tls_client_cert"
        ),
        Garbled(InvalidMessage::InvalidContentType) => format!(
            "redis at {address} does not speak TLS on this port: use redis://, or the port that \
             does"
        ),
        _ => format!("no TLS with redis at {address}: {error}"),
    };
    Some(StoreError::new(StoreErrorKind::Refused, text))
}

fn cause(error: &RedisError) -> Option<&rustls::Error> {
    let source = error.source()?;
    let source = match source.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref::<io::Error>(),
        None => source.downcast_ref::<io::Error>(),
    };
    source?.get_ref()?.downcast_ref()
}
