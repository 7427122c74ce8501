//! Connections without TLS, if the feature `rustls` is disabled.

use tokio_postgres::NoTls;

use crate::connection_string::{TlsMode, TlsSettings};
use crate::error::{PostgresError, PostgresErrorKind};

pub(crate) type TlsConnector = NoTls;

/// As in a libpq without TLS, `prefer` connects without encryption, and the stronger modes fail.
pub(crate) fn tls_connector(settings: &TlsSettings) -> Result<TlsConnector, PostgresError> {
    match settings.mode {
        TlsMode::Disable | TlsMode::Prefer => Ok(NoTls),
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => {
            let message = "the feature `rustls` of turnstream-postgres is disabled";
            Err(PostgresError::new(PostgresErrorKind::Tls, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_string::RootCertificates;

    #[test]
    fn a_connection_that_must_be_encrypted_is_refused_without_tls() {
        let check =
            |mode| tls_connector(&TlsSettings { mode, root_certificates: RootCertificates::Unset });
        assert!(check(TlsMode::Disable).is_ok() && check(TlsMode::Prefer).is_ok());
        for mode in [TlsMode::Require, TlsMode::VerifyCa, TlsMode::VerifyFull] {
            assert_eq!(check(mode).unwrap_err().kind(), PostgresErrorKind::Tls);
        }
    }
}
