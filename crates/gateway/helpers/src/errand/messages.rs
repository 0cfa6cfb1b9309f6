//! Messages between main and an errand.

use super::tsig::TsigKey;
use crate::redirect::HttpChallenge;
use dormouse_config::AcmeChallenge;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use zeroize::{Zeroize as _, Zeroizing};

/// Arguments of an errand.
#[derive(Serialize, Deserialize)]
pub struct ErrandArguments {
    /// The errand's end of the channel to main.
    pub channel: i32,
    /// [`TlsFile`](crate::tls_file::TlsFile) for ACME servers, if there is such a job.
    pub tls: Option<i32>,
}

/// A job from main.
#[derive(Serialize, Deserialize)]
pub enum Job {
    /// Ask the authority whether the first certificate of a chain is revoked.
    Ocsp {
        /// Returned with the response.
        id: u64,
        /// The chain, DER.
        chain: Vec<Vec<u8>>,
    },
    /// Obtain a certificate for a name.
    Obtain(CertificateRequest),
    /// Ask when a certificate is to be renewed.
    AskRenewal(RenewalQuery),
    /// The challenge is answered now: the server may validate it.
    Proceed,
    /// The record was not written, with the reason.
    Refused(String),
}

/// A result of an errand.
#[derive(Serialize, Deserialize)]
pub enum ErrandReport {
    /// A new account, for main to keep.
    Account(Account),
    /// A challenge for workers to answer.
    Challenge(Challenge),
    /// A challenge for the redirect process to answer.
    HttpChallenge(HttpChallenge),
    /// A record to add or to remove. Main answers with [`Job::Proceed`] or [`Job::Refused`].
    DnsRecord {
        /// Its value.
        value: String,
        /// Whether it is added.
        is_added: bool,
    },
    /// An order is placed. Another errand can continue it.
    Placed {
        /// The name it is for.
        name: String,
        /// What the other errand needs.
        order: PlacedOrder,
    },
    /// The work on an order has ended.
    Certificate {
        /// The name it was for.
        name: String,
        /// The certificate, or why there is none.
        issued: Result<IssuedCertificate, OrderFailure>,
    },
    /// The server's advice on a renewal.
    Renewal {
        /// The name that the certificate is for.
        name: String,
        /// `None`: the server does not say.
        window: Result<Option<RenewalWindow>, String>,
    },
    /// The authority's response, verified.
    Ocsp {
        /// The id of the job.
        id: u64,
        /// The response, DER, and the Unix time until which it is valid.
        response: Result<(Vec<u8>, u64), NoResponse>,
    },
}

/// Why there is no OCSP response to staple, in words.
#[derive(Serialize, Deserialize)]
pub enum NoResponse {
    /// The authority says that the certificate is revoked.
    Revoked(String),
    /// The query failed, or its response is not usable.
    Failed(String),
}

/// An ACME server, and the account there.
#[derive(Clone, Serialize, Deserialize)]
pub struct AcmeServer {
    /// URL of its directory.
    pub directory: String,
    /// Address at which the server's operators reach the owner of a new account.
    pub email: Option<String>,
    /// `None`: there is no account yet.
    pub account: Option<Account>,
    /// Binds a new account to one that the server's operators know.
    pub binding: Option<AccountBinding>,
    /// Whether the server has refused orders of this account as if it did not know it: after another refusal it is replaced.
    pub is_doubted: bool,
}

/// An order that the server has not completed yet.
#[derive(Clone, Serialize, Deserialize)]
pub struct PlacedOrder {
    /// Its URL.
    pub url: String,
    /// The key of the certificate.
    pub key: PrivateKeyLines,
}

/// Why there is no certificate yet.
#[derive(Serialize, Deserialize)]
pub struct OrderFailure {
    /// The reason, in words.
    pub why: String,
    /// What is left of the order.
    pub state: OrderState,
    /// Seconds after which the server wants to be asked again, if it says so.
    pub again_s: Option<u64>,
}

/// What is left of an order without a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OrderState {
    /// The server works on it.
    Unfinished,
    /// The server could not be asked. It may have completed it.
    Unreached,
    /// Nothing: the next attempt places another one.
    Over,
    /// It was not placed: the server may no longer know the account.
    Doubted,
}

/// An order for a certificate.
#[derive(Serialize, Deserialize)]
pub struct CertificateRequest {
    /// The server that issues the certificate.
    pub server: AcmeServer,
    /// The name that the certificate is for.
    pub name: String,
    /// DER of the certificate that it replaces.
    pub replaces: Option<Vec<u8>>,
    /// How to prove control of the name to the server.
    pub challenge: AcmeChallenge,
    /// The order that a former errand has placed.
    pub placed: Option<PlacedOrder>,
    /// How to write the records of dns-01.
    pub dns: Option<DnsWay>,
    /// The kind of certificate, in the server's words.
    pub profile: Option<String>,
}

/// How records of DNS are written.
#[derive(Serialize, Deserialize)]
pub enum DnsWay {
    /// By updates, from here.
    Updates(DnsUpdates),
    /// By a program, which main runs ([`ErrandReport::DnsRecord`]).
    Hook {
        /// Seconds to wait after a record was added.
        wait_s: u64,
    },
}

/// A DNS server that accepts updates.
#[derive(Serialize, Deserialize)]
pub struct DnsUpdates {
    /// Its address.
    pub server: SocketAddr,
    /// Authenticates the updates.
    pub key: Option<TsigKey>,
    /// Seconds to wait after an update.
    pub wait_s: u64,
}

/// A query for the renewal time of a certificate.
#[derive(Serialize, Deserialize)]
pub struct RenewalQuery {
    /// The server that issued the certificate.
    pub server: AcmeServer,
    /// The name that the certificate is for.
    pub name: String,
    /// The certificate, DER.
    pub certificate: Vec<u8>,
}

/// Credentials of an account, in the ACME library's format. None of these strings has a character
/// that JSON escapes, so parsing and serialising leave no copies behind.
#[derive(Clone, Serialize, Deserialize)]
pub struct Account {
    /// URL of the account.
    pub id: String,
    /// PKCS #8, in base64url.
    pub(super) key_pkcs8: String,
    /// URL of the server's directory.
    pub directory: String,
}

/// External Account Binding (RFC 8555 §7.3.4).
#[derive(Clone, Serialize, Deserialize)]
pub struct AccountBinding {
    /// Identifier of the key.
    pub id: String,
    /// Base64url.
    pub key: String,
}

/// A certificate that proves control of a name, and serves no other purpose.
#[derive(Serialize, Deserialize)]
pub struct Challenge {
    /// The name.
    pub name: String,
    /// PEM.
    pub chain: String,
    /// The certificate's key.
    pub key: PrivateKeyLines,
}

/// A certificate that an ACME server has issued.
#[derive(Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// PEM.
    pub chain: String,
    /// The certificate's key.
    pub key: PrivateKeyLines,
}

/// The period in which a server wants a certificate renewed.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct RenewalWindow {
    /// Unix time.
    pub from_s: i64,
    /// Unix time.
    pub until_s: i64,
    /// Seconds after which the server is asked again.
    pub ask_again_s: u64,
}

/// The lines of a private key in PEM. As one string, its line ends would be JSON escapes, and a parser
/// of escapes leaves copies behind.
#[derive(Clone, Serialize, Deserialize)]
pub struct PrivateKeyLines(Vec<String>);

impl PrivateKeyLines {
    pub(super) fn of(pem: &str) -> PrivateKeyLines {
        PrivateKeyLines(pem.lines().map(str::to_owned).collect())
    }

    /// The key as PEM.
    pub fn pem(&self) -> Zeroizing<String> {
        let len = self.0.iter().map(|line| line.len() + 1).sum();
        let mut pem = Zeroizing::new(String::with_capacity(len));
        for line in &self.0 {
            pem.push_str(line);
            pem.push('\n');
        }
        pem
    }
}

impl Drop for PrivateKeyLines {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(String::zeroize);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.key_pkcs8.zeroize();
    }
}

impl Drop for AccountBinding {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_serialised_without_escapes() {
        let pem = "-----BEGIN PRIVATE KEY-----\nAAAA\nBB==\n-----END PRIVATE KEY-----\n";
        let text = serde_json::to_string(&PrivateKeyLines::of(pem)).expect("JSON");
        assert!(!text.contains('\\'), "{text}");
        let back: PrivateKeyLines = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back.pem().as_str(), pem);
    }
}
