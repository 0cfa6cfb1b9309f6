//! What main and the redirect process tell each other.

use serde::{Deserialize, Serialize};

/// Command line of the redirect process.
#[derive(Serialize, Deserialize)]
pub struct RedirectArguments {
    /// Listening sockets.
    pub listeners: Vec<i32>,
    /// Its end of the channel to main. It ends when main closes the other one.
    pub channel: i32,
    /// Where requests are sent.
    pub site: Site,
}

/// Where requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Status of a redirect: 301 or 308.
    pub status: u16,
    /// Port of the https address.
    pub port: u16,
}

/// The answer to an ACME server that looks whether a name is ours (RFC 8555 §8.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpChallenge {
    /// The name.
    pub name: String,
    /// The last part of the path at which the server looks.
    pub token: String,
    /// What it must find there. It is no secret.
    pub key_authorization: String,
}

/// Main's order: this challenge is answered from now on, or none.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChallengeOrder {
    /// Its number.
    pub number: u64,
    /// The challenge.
    pub challenge: Option<HttpChallenge>,
}

/// The order with this number is obeyed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChallengeShown(pub u64);
