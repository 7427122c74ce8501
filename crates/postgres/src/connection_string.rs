//! Handles the connection string options that tokio-postgres does not support.
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

/// The settings that determine whether TLS is used and how the server's certificate is verified.
/// `sslmode` and `sslrootcert` have the same meaning as in libpq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: TlsMode,
    pub(crate) root_certificates: RootCertificates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    /// The connection is encrypted if the server supports encryption.
    Prefer,
    /// The connection is encrypted. The certificate is verified if root certificates are given.
    Require,
    /// The connection is encrypted. The certificate is verified, except for the host name in the
    /// certificate.
    VerifyCa,
    VerifyFull,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootCertificates {
    Unset,
    /// The platform's root certificates, selected with `sslrootcert=system`.
    Platform,
    File(PathBuf),
}

/// A connection string, split into the TLS settings and the remaining options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SplitConnectionString {
    /// The connection string without `sslmode` and `sslrootcert`.
    pub(crate) rest: String,
    pub(crate) tls: TlsSettings,
}

/// The name of an option whose value is not supported. The value itself is not included.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadOption(pub(crate) &'static str);

/// Removes the TLS options from a URL or from a string of `key=value` pairs.
pub(crate) fn split_connection_string(text: &str) -> Result<SplitConnectionString, BadOption> {
    let (rest, options) = match is_url(text) {
        true => split_url(text),
        false => split_pairs(text),
    };
    let mut mode = None;
    let mut root_certificates = RootCertificates::Unset;
    for (key, value) in options {
        match key {
            TlsKey::Mode => mode = Some(parse_mode(&value).ok_or(BadOption("sslmode"))?),
            TlsKey::RootCertificates => {
                root_certificates = match &*value {
                    "system" => RootCertificates::Platform,
                    path => RootCertificates::File(path.into()),
                };
            }
        }
    }
    let mode = match (mode, &root_certificates) {
        // As in libpq, the platform's certificates are trusted for any host, so the name must be
        // verified.
        (None | Some(TlsMode::VerifyFull), RootCertificates::Platform) => TlsMode::VerifyFull,
        (Some(_), RootCertificates::Platform) => return Err(BadOption("sslmode")),
        (mode, _) => mode.unwrap_or(TlsMode::Prefer),
    };
    Ok(SplitConnectionString { rest, tls: TlsSettings { mode, root_certificates } })
}

#[derive(Clone, Copy)]
enum TlsKey {
    Mode,
    RootCertificates,
}

impl TlsKey {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "sslmode" => Some(Self::Mode),
            "sslrootcert" => Some(Self::RootCertificates),
            _ => None,
        }
    }
}

fn parse_mode(value: &str) -> Option<TlsMode> {
    Some(match value {
        "disable" => TlsMode::Disable,
        "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        _ => return None,
    })
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn split_url(url: &str) -> (String, Vec<(TlsKey, String)>) {
    // A question mark in a password must be written as `%3F`.
    let Some((address, query)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let mut options = Vec::new();
    let mut rest = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match TlsKey::from_name(key) {
            Some(key) => {
                options.push((key, percent_decode_str(value).decode_utf8_lossy().into_owned()));
            }
            None => rest.push(pair),
        }
    }
    let rest = match rest.is_empty() {
        true => address.to_owned(),
        false => format!("{address}?{}", rest.join("&")),
    };
    (rest, options)
}

/// Removes the TLS options from a string of `key = value` pairs. Returns the remaining string and
/// the removed options. A value may be quoted with `'`, and `\` escapes the next character.
/// Malformed text is not removed from the string, so that tokio-postgres rejects it.
fn split_pairs(text: &str) -> (String, Vec<(TlsKey, String)>) {
    let mut options = Vec::new();
    let mut rest = String::new();
    let mut left = text.trim_start();
    while !left.is_empty() {
        let Some((key, after)) = left.split_once('=') else { break };
        let (value, len) = read_value(after.trim_start());
        let end = left.len() - after.trim_start().len() + len;
        match TlsKey::from_name(key.trim()) {
            Some(key) => options.push((key, value)),
            None => {
                rest.push_str(&left[..end]);
                rest.push(' ');
            }
        }
        left = left[end..].trim_start();
    }
    rest.push_str(left);
    (rest.trim_end().to_owned(), options)
}

/// Reads the option value at the start of a string. Returns the value and the number of bytes read.
fn read_value(text: &str) -> (String, usize) {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            '\'' if is_quoted => return (value, at + 1),
            _ if !is_quoted && character.is_whitespace() => return (value, at),
            _ => value.push(character),
        }
    }
    (value, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, rest: &str, mode: TlsMode, root_certificates: RootCertificates) {
        let split = split_connection_string(text).unwrap();
        assert_eq!(split.rest, rest);
        assert_eq!(split.tls, TlsSettings { mode, root_certificates });
    }

    #[test]
    fn tls_options_are_extracted_from_a_url() {
        let unset = RootCertificates::Unset;
        let plain = "postgres://u:p%3F@a,b:5433/d";
        check(plain, plain, TlsMode::Prefer, unset.clone());
        check(&format!("{plain}?sslmode=verify-ca"), plain, TlsMode::VerifyCa, unset.clone());
        check(
            "postgresql:///d?connect_timeout=3&sslrootcert=/a%20b.pem&sslmode=require&user=u",
            "postgresql:///d?connect_timeout=3&user=u",
            TlsMode::Require,
            RootCertificates::File("/a b.pem".into()),
        );
        check(
            "postgres://a?sslrootcert=system",
            "postgres://a",
            TlsMode::VerifyFull,
            RootCertificates::Platform,
        );
    }

    #[test]
    fn tls_options_are_extracted_from_key_value_pairs() {
        check(
            r"host=a password='s\'s sslmode=x' sslmode = verify-full dbname=d sslrootcert='/a b.pem'",
            r"host=a password='s\'s sslmode=x' dbname=d",
            TlsMode::VerifyFull,
            RootCertificates::File("/a b.pem".into()),
        );
        check("host=a nonsense", "host=a nonsense", TlsMode::Prefer, RootCertificates::Unset);
    }

    #[test]
    fn an_unknown_tls_mode_error_names_its_option() {
        let refused = |text: &str| split_connection_string(text).unwrap_err();
        assert_eq!(refused("postgres://a?sslmode=allow"), BadOption("sslmode"));
        assert_eq!(refused("sslmode=require sslrootcert=system"), BadOption("sslmode"));
    }
}
