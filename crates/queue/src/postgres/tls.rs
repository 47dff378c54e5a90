//! TLS to the database, configured by four settings of libpq (PostgreSQL's documentation, libpq, "SSL Support").

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::database::Failure;

/// The settings, in the address or in the environment.
const NAMES: [(&str, &str); 4] = [
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
];

/// How connections are encrypted.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) mode: SslMode,
    pub(super) connect: MakeRustlsConnect,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Tls {
    /// Takes the settings out of an address; returns the rest of the address as well.
    ///
    /// # Errors
    /// When a mode is unknown, or a file cannot be read.
    pub(super) fn take_from(address: &str) -> Result<(String, Tls), Failure> {
        let mut values = NAMES.map(|(_, variable)| std::env::var(variable).ok());
        let (front, query) = address.split_once('?').unwrap_or((address, ""));
        let others = query.split('&').filter(|setting| {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let place = NAMES.iter().position(|(known, _)| *known == name);
            place.is_none_or(|place| {
                values[place] = Some(decoded(value));
                false
            })
        });
        let others: Vec<_> = others.collect();
        let rest = format!("{front}?{}", others.join("&"));
        let values = values.map(|value| value.filter(|value| !value.is_empty()));
        Ok((rest, Tls::new(&values)?))
    }

    fn new(settings: &[Option<String>; 4]) -> Result<Tls, Failure> {
        let [mode, root, certificate, key] = match settings {
            // Without TLS, no file is read.
            [mode @ Some(name), ..] if name == "disable" => &[mode.clone(), None, None, None],
            all => all,
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let (mode, is_verified) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, false),
            None | Some("prefer") => (SslMode::Prefer, false),
            Some("require") => (SslMode::Require, false),
            Some("verify-full") => (SslMode::Require, true),
            Some(_) => {
                return invalid("sslmode must be disable, prefer, require or verify-full");
            }
        };
        let builder = match (is_verified, root) {
            (true, Some(root)) => builder.with_root_certificates(roots(Path::new(root))?),
            (true, None) => return invalid("sslmode=verify-full needs sslrootcert"),
            (false, Some(_)) if mode == SslMode::Require => {
                return invalid(
                    "sslmode=require trusts any server: with sslrootcert, use verify-full",
                );
            }
            (false, _) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
            }
        };
        let mut config = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                let key = private_key(Path::new(key))?;
                let certificates = certificates("sslcert", Path::new(certificate))?;
                builder.with_client_auth_cert(certificates, key).map_err(unusable)?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => return invalid("sslcert and sslkey need each other"),
        };
        // The name that PostgreSQL has registered for ALPN (libpq, `sslnegotiation`).
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Tls { mode, connect: MakeRustlsConnect::new(config) })
    }
}

fn invalid<T>(text: &str) -> Result<T, Failure> {
    Err(Failure::Invalid(text.to_owned()))
}

fn unusable(error: Error) -> Failure {
    Failure::Invalid(format!("cannot set up TLS to the database: {error}"))
}

fn unreadable(setting: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Invalid(format!("cannot read the file of {setting}: {error}"))
}

/// Refuses a key that other users can read, as libpq does. A group may read a key that root owns.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    let metadata = fs::metadata(file).map_err(|error| unreadable("sslkey", error))?;
    let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & others != 0 {
        return Err(unreadable("sslkey", "other users can read it; `chmod 600` it"));
    }
    PrivateKeyDer::from_pem_file(file).map_err(|error| unreadable("sslkey", error))
}

fn roots(file: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("sslrootcert", file)? {
        roots.add(certificate).map_err(|error| unreadable("sslrootcert", error))?;
    }
    Ok(roots)
}

fn certificates(setting: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unreadable(setting, error))?;
    if read.is_empty() {
        return Err(unreadable(setting, "it has no certificate in PEM"));
    }
    Ok(read)
}

/// Undoes the percent-encoding of a URL (RFC 3986, section 2.1).
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let meant = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(meant.unwrap_or(byte));
        rest = if meant.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Trusts any certificate. The server must still have the certificate's key.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn address_keeps_other_settings() {
        let text = "postgresql://me@host/db?sslmode=disable&connect_timeout=3&sslrootcert=%2Fa%20b";
        let (rest, tls) = Tls::take_from(text).unwrap();
        assert_eq!(rest, "postgresql://me@host/db?connect_timeout=3");
        assert_eq!(tls.mode, SslMode::Disable);
        assert_eq!(decoded("%2Fa%20b%"), "/a b%");
    }

    #[test]
    fn disabled_tls_reads_no_file() {
        let settings = "sslmode=disable&sslrootcert=/nowhere&sslcert=/nowhere&sslkey=/nowhere";
        let (_, tls) = Tls::take_from(&format!("postgresql://me@host/db?{settings}")).unwrap();
        assert_eq!(tls.mode, SslMode::Disable);
    }

    #[test]
    fn unusable_settings_are_refused() {
        for (settings, why) in [
            ("sslmode=always", "sslmode must be"),
            ("sslmode=verify-full", "needs sslrootcert"),
            ("sslmode=verify-full&sslrootcert=/nowhere", "cannot read the file of sslrootcert"),
            ("sslmode=verify-full&sslrootcert=/dev/null", "no certificate"),
            ("sslmode=require&sslrootcert=/nowhere", "use verify-full"),
            ("sslcert=/nowhere", "need each other"),
            ("sslcert=/nowhere&sslkey=/nowhere", "cannot read the file of sslkey"),
            ("sslcert=/nowhere&sslkey=/dev/null", "other users can read it"),
        ] {
            let refused = Tls::take_from(&format!("postgresql://me@host/db?{settings}"));
            let Err(Failure::Invalid(text)) = refused else { panic!("{settings} is taken") };
            assert!(text.contains(why), "{text}");
        }
    }
}
