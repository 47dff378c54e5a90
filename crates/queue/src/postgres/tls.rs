//! TLS to the database, as libpq's settings ask for it (PostgreSQL's documentation, libpq, "SSL
//! Support"). Of these tokio_postgres knows neither who is trusted nor a certificate of one's own.

mod settings;
mod verifier;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Session;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, crypto};

pub(super) use self::settings::Settings;
use self::verifier::Verifier;
use crate::database::Failure;

/// How connections are encrypted.
#[derive(Debug, Clone)]
pub(super) struct Tls {
    /// Whether they are.
    pub(super) mode: SslMode,
    config: Arc<ClientConfig>,
    /// Whether a server has said that it encrypts.
    begun: Arc<AtomicBool>,
}

impl Tls {
    /// # Errors
    /// When there is no such mode, or a file cannot be read.
    pub(super) fn new(settings: &Settings) -> Result<Tls, Failure> {
        let (mode, trust) = settings.mode()?;
        let invalid = |error: Error| {
            Failure::Invalid(format!("there can be no TLS to the database: {error}"))
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let verifier = Verifier { trust, algorithms: provider.signature_verification_algorithms };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let identity = if mode == SslMode::Disable { None } else { settings.identity()? };
        let mut config = match identity {
            Some((certificates, key)) => {
                builder.with_client_auth_cert(certificates, key).map_err(invalid)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Tls { mode, config: Arc::new(config), begun: Arc::default() })
    }

    /// The same for a connection that is yet to be made.
    pub(super) fn anew(&self) -> Tls {
        Tls { begun: Arc::default(), ..self.clone() }
    }

    /// Whether encrypting was begun, of connections that were made with this one or a clone.
    pub(super) fn was_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let (config, begun) = (Arc::clone(&self.config), Arc::clone(&self.begun));
        Ok(Handshake { config, host: host.to_owned(), begun })
    }
}

/// Encrypts a connection to a host.
pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    host: String,
    begun: Arc<AtomicBool>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        self.begun.store(true, Ordering::Relaxed);
        Box::pin(async move {
            let name = ServerName::try_from(self.host.clone())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let session = TlsConnector::from(self.config).connect(name, socket).await;
            session.map(Encrypted).map_err(|error| told(error, &self.host))
        })
    }
}

/// What was wrong with the server's certificate, for a person.
fn told(error: io::Error, host: &str) -> io::Error {
    let what = match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "nobody whom sslrootcert trusts has issued its certificate".to_owned()
        }
        // As where an issuer was made anew by the same name.
        Some(Error::InvalidCertificate(CertificateError::BadSignature)) => {
            "what it shows was not signed with its own key, or its certificate not with that of the \
             issuer in sslrootcert"
                .to_owned()
        }
        Some(Error::InvalidCertificate(
            wrong @ (CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }),
        )) => format!("its certificate is not for {host}: {wrong}"),
        Some(Error::InvalidCertificate(wrong)) => format!("its certificate is refused: {wrong}"),
        _ => return error,
    };
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A connection that is encrypted.
pub(super) struct Encrypted(Session<Socket>);

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        // It would have to be known with which hash the server's certificate was signed.
        ChannelBinding::none()
    }
}
