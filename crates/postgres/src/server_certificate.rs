//! Verifies the server's certificate.
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as Rustls, RootCertStore,
    SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection_string::{RootCertificates, TlsMode, TlsSettings};
use crate::error::{PostgresError, PostgresErrorKind};

pub(crate) type TlsConnector = MakeRustlsConnect;

/// Creates the TLS connector, and reads the root certificate file.
pub(crate) fn tls_connector(settings: &TlsSettings) -> Result<TlsConnector, PostgresError> {
    // The crypto provider is the one that reqwest uses, regardless of the process's default.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match (settings.mode, &settings.root_certificates) {
        (TlsMode::Disable | TlsMode::Prefer, _) | (TlsMode::Require, RootCertificates::Unset) => {
            Arc::new(Unverified(provider.clone()))
        }
        (TlsMode::VerifyFull, roots) => verifier(roots, &provider)?,
        // Only webpki is known to check the name last, after the rest of the chain has been
        // verified.
        (_, RootCertificates::Unset | RootCertificates::Platform)
            if cfg!(any(windows, target_vendor = "apple", target_os = "android")) =>
        {
            return Err(tls_error("without a name to check, `sslrootcert` has to be a file here"));
        }
        (TlsMode::Require | TlsMode::VerifyCa, roots) => {
            Arc::new(AnyName(verifier(roots, &provider)?))
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn tls_error(error: impl std::fmt::Display) -> PostgresError {
    PostgresError::new(PostgresErrorKind::Tls, format!("TLS cannot be set up: {error}"))
}

fn verifier(
    roots: &RootCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, PostgresError> {
    match roots {
        RootCertificates::Unset | RootCertificates::Platform => {
            Ok(Arc::new(Verifier::new(provider.clone()).map_err(tls_error)?))
        }
        RootCertificates::File(path) => {
            let roots = Arc::new(read_certificates(path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Ok(verifier.build().map_err(tls_error)?)
        }
    }
}

fn read_certificates(path: &Path) -> Result<RootCertStore, PostgresError> {
    let cannot = |error: &dyn std::fmt::Display| {
        let message = format!("cannot read root certificates from `{}`: {error}", path.display());
        PostgresError::new(PostgresErrorKind::Tls, message)
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error))? {
        let certificate = certificate.map_err(|error| cannot(&error))?;
        roots.add(certificate).map_err(|error| cannot(&error))?;
    }
    match roots.is_empty() {
        true => Err(cannot(&"it has none")),
        false => Ok(roots),
    }
}

/// Verifies certificates for `sslmode=require`, which encrypts the connection without verifying the
/// server.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Rustls> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Rustls> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Rustls> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies certificates for `sslmode=verify-ca`, which requires a trusted certificate but accepts
/// any name in the certificate.
#[derive(Debug)]
struct AnyName(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Rustls> {
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is checked last, so the rest of the chain has already been verified.
            Err(Rustls::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Rustls> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Rustls> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
