//! What an address says of TLS, and the environment where it does not.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio_postgres::config::SslMode;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::verifier::Trust;
use crate::database::Failure;
use crate::plain::{is_name, is_path};

/// libpq's settings, by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::postgres) struct Settings {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
}

impl Settings {
    /// Takes them out of an address, of which the rest is returned, too.
    pub(in crate::postgres) fn take_from(address: &str) -> (String, Settings) {
        let mut settings = Settings::default();
        let is_url = ["postgres://", "postgresql://"].iter().any(|url| address.starts_with(url));
        let rest = if is_url {
            let Some((front, query)) = address.split_once('?') else {
                return (address.to_owned(), settings);
            };
            let others = query.split('&').filter(|setting| {
                let set = setting.split_once('=').and_then(|(name, value)| {
                    *settings.place(name)? = Some(decoded(value)?);
                    Some(())
                });
                set.is_none()
            });
            format!("{front}?{}", others.collect::<Vec<_>>().join("&"))
        } else {
            let (mut rest, mut text) = (String::new(), address);
            while let Some((name, value, behind)) = first(text) {
                match settings.place(name) {
                    Some(place) => *place = Some(value),
                    None => rest.push_str(&text[..text.len() - behind.len()]),
                }
                text = behind;
            }
            rest + text
        };
        (rest, settings)
    }

    fn place(&mut self, name: &str) -> Option<&mut Option<String>> {
        match name {
            "sslmode" => Some(&mut self.sslmode),
            "sslrootcert" => Some(&mut self.sslrootcert),
            "sslcert" => Some(&mut self.sslcert),
            "sslkey" => Some(&mut self.sslkey),
            _ => None,
        }
    }

    /// What the environment says of what is not said here.
    pub(in crate::postgres) fn or_environment(mut self) -> Settings {
        for name in ["sslmode", "sslrootcert", "sslcert", "sslkey"] {
            if let Some(place @ None) = self.place(name) {
                *place = std::env::var(format!("PG{}", name.to_uppercase())).ok();
            }
        }
        self
    }

    /// Whether connections are encrypted, and who is taken for the server then.
    pub(super) fn mode(&self) -> Result<(SslMode, Trust), Failure> {
        let root = || usual(self.sslrootcert.as_deref(), "root.crt");
        let needed = || root().map(|file| roots(&file.0));
        let missing = |mode| {
            let text = format!(
                "sslmode={mode} has to know whom to trust: give sslrootcert, or put the issuer's \
                 certificate into ~/.postgresql/root.crt"
            );
            Failure::Invalid(text)
        };
        match self.sslmode.as_deref().unwrap_or("prefer") {
            "disable" => Ok((SslMode::Disable, Trust::Anybody)),
            "prefer" => Ok((SslMode::Prefer, Trust::Anybody)),
            // As in libpq, it says verify-ca where somebody has said whom to trust.
            "require" => match needed() {
                Some(roots) => Ok((SslMode::Require, Trust::Issued(roots?))),
                None => Ok((SslMode::Require, Trust::Anybody)),
            },
            mode @ "verify-ca" => {
                let roots = needed().ok_or_else(|| missing(mode))??;
                Ok((SslMode::Require, Trust::Issued(roots)))
            }
            mode @ "verify-full" => {
                let roots = needed().ok_or_else(|| missing(mode))??;
                Ok((SslMode::Require, Trust::Named(roots)))
            }
            mode => {
                let not = if is_name(mode) { format!(", not {mode}") } else { String::new() };
                Err(Failure::Invalid(format!(
                    "sslmode is one of disable, prefer, require, verify-ca and verify-full{not}"
                )))
            }
        }
    }

    /// The certificates to show to a server that asks for one, and the key of the first.
    pub(super) fn identity(
        &self,
    ) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, Failure> {
        let Some(Named(file)) = usual(self.sslcert.as_deref(), "postgresql.crt") else {
            return Ok(None);
        };
        let Some(Named(key)) = usual(self.sslkey.as_deref(), "postgresql.key") else {
            let text = format!("{} is of no use without its key: give sslkey", shown(&file));
            return Err(Failure::Invalid(text));
        };
        let found = fs::metadata(&key).map_err(|error| unreadable(&key, &error))?;
        // One of root's may be its group's to read.
        let others = if found.uid() == 0 { 0o037 } else { 0o077 };
        if found.mode() & others != 0 {
            return Err(Failure::Invalid(format!(
                "{} can be read by others: `chmod 600` it",
                shown(&key)
            )));
        }
        let private =
            PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, &error))?;
        Ok(Some((certificates(&file)?, private)))
    }
}

/// A file that was named, or has its usual place and is there.
struct Named(PathBuf);

fn usual(named: Option<&str>, name: &str) -> Option<Named> {
    if let Some(file) = named.filter(|file| !file.is_empty()) {
        return Some(Named(file.into()));
    }
    let file = PathBuf::from(std::env::var_os("HOME")?).join(".postgresql").join(name);
    file.is_file().then_some(Named(file))
}

fn roots(file: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| unreadable(file, &error))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| unreadable(file, &error))?;
    if read.is_empty() {
        return Err(Failure::Invalid(format!("{} has no certificate, as PEM", shown(file))));
    }
    Ok(read)
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Invalid(format!("cannot read {}: {error}", shown(file)))
}

/// What a file is called, unless a setting has more in it than that.
fn shown(file: &Path) -> &str {
    file.to_str()
        .filter(|file| is_path(file))
        .unwrap_or("the file of sslrootcert, sslcert or sslkey")
}

/// The first setting of `name = value`, with what is behind it.
fn first(text: &str) -> Option<(&str, String, &str)> {
    let (name, value) = text.split_once('=')?;
    let (name, value) = (name.trim(), value.trim_start());
    let quoted = value.strip_prefix('\'');
    let text = quoted.unwrap_or(value);
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted.is_some() => return Some((name, value, &text[at + 1..])),
            _ if quoted.is_none() && letter.is_whitespace() => {
                return Some((name, value, &text[at..]));
            }
            _ => value.push(letter),
        }
    }
    quoted.is_none().then_some((name, value, ""))
}

/// What a URL writes with `%` and two digits where a letter would mean something else.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let meant = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(meant.unwrap_or(byte));
        rest = if meant.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_keeps_what_is_not_about_tls() {
        for (text, rest) in [
            (
                "postgresql://me@host/db?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa%20b",
                "postgresql://me@host/db?connect_timeout=3",
            ),
            (
                "host=there sslmode = verify-full  user='it\\'s me' sslrootcert='/a b'",
                "host=there  user='it\\'s me'",
            ),
        ] {
            let (kept, settings) = Settings::take_from(text);
            assert_eq!(kept, rest);
            let (sslmode, sslrootcert) = (Some("verify-full".into()), Some("/a b".into()));
            assert_eq!(settings, Settings { sslmode, sslrootcert, ..Settings::default() });
            kept.parse::<tokio_postgres::Config>().unwrap();
        }
        for text in ["postgresql://me@host/db", "host=there port", "host='there"] {
            assert_eq!(Settings::take_from(text), (text.to_owned(), Settings::default()));
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for (text, told) in [
            ("sslmode=always", "verify-ca and verify-full, not always"),
            ("sslmode=require;password=secret", "verify-ca and verify-full"),
            (
                "sslmode=require sslrootcert=/nowhere;password=secret",
                "cannot read the file of sslrootcert",
            ),
            ("sslmode=verify-full sslrootcert=/nowhere", "cannot read /nowhere"),
            ("sslmode=require sslrootcert=/nowhere", "cannot read /nowhere"),
            ("sslmode=verify-ca sslrootcert=/dev/null", "/dev/null has no certificate"),
        ] {
            let (_, settings) = Settings::take_from(text);
            let Err(Failure::Invalid(why)) = settings.mode() else { panic!("{text} is taken") };
            assert!(why.contains(told) && !why.contains("secret"), "{why}");
        }
    }
}
