//! Messages between main and the redirect process.

use serde::{Deserialize, Serialize};

/// Arguments of the redirect process.
#[derive(Serialize, Deserialize)]
pub struct RedirectArguments {
    /// Listening sockets.
    pub listeners: Vec<i32>,
    /// The process's end of the channel to main. The process ends when main closes its end.
    pub channel: i32,
    /// Target of the redirects.
    pub site: Site,
}

/// Target of the redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Status of a redirect: 301 or 308.
    pub status: u16,
    /// Port of the https address.
    pub port: u16,
}

/// The response to an ACME server that validates our control of a name (RFC 8555 §8.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpChallenge {
    /// The name.
    pub name: String,
    /// The last part of the path that the server requests.
    pub token: String,
    /// The expected response. It is not secret.
    pub key_authorization: String,
}

/// An order of main: answer these challenges from now on, and no others.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChallengeOrder {
    /// Number of the order.
    pub number: u64,
    /// The challenges.
    pub challenges: Vec<HttpChallenge>,
}

/// Confirms that the order with this number is in effect.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChallengeShown(pub u64);
