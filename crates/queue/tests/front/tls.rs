//! TLS, and certificates of clients.

use knee_queue::grpc::{Settings, Tls};
use knee_rpc::queue::CountsRequest;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::ledger::Ledger;
use super::server::{Server, settings};

/// The issuer of certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Without a name of its own, its certificates would look self-signed.
        params.distinguished_name.push(DnType::OrganizationName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate and its key.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn settings(&self, client_ca: Option<&Authority>) -> Settings {
        let (certificate, key) = self.issue("localhost");
        let client_ca = client_ca.map(|authority| authority.certificate.clone().into());
        let tls = Tls { certificate: certificate.into(), key: key.into(), client_ca };
        Settings { tls: Some(tls), ..settings() }
    }

    /// The configuration of a client that trusts this authority, and has a certificate of another.
    fn trusted(&self, by: Option<&Authority>) -> ClientTlsConfig {
        let trusts = Certificate::from_pem(&self.certificate);
        let config = ClientTlsConfig::new().ca_certificate(trusts);
        match by.map(|authority| authority.issue("client")) {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        }
    }
}

/// Whether a client gets an answer.
async fn is_served(server: &Server, tls: ClientTlsConfig) -> bool {
    let client = server.client_with(|endpoint| endpoint.tls_config(tls).unwrap()).await;
    match client {
        Ok(mut client) => client.counts(CountsRequest {}).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn clients_that_trust_the_server_are_served() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Server::with(authority.settings(None), Ledger::open());
    assert!(is_served(&server, authority.trusted(None)).await);
    assert!(!is_served(&server, other.trusted(None)).await);
}

#[tokio::test]
async fn client_without_required_certificate_is_refused() {
    let (authority, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    let server = Server::with(authority.settings(Some(&clients)), Ledger::open());
    assert!(is_served(&server, authority.trusted(Some(&clients))).await);
    assert!(!is_served(&server, authority.trusted(None)).await);
    assert!(!is_served(&server, authority.trusted(Some(&other))).await);
    // Refused clients do not affect others.
    assert!(is_served(&server, authority.trusted(Some(&clients))).await);
}
