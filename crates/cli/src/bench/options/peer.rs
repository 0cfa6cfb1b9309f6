//! Options about the server at the other end, the same for `bench` and `audit`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use dormouse_bench::load::{Expect, IdentityFiles, Starttls, Trust};
use dormouse_measure::Error;

/// Trusted certificates, server name, and client certificate.
#[derive(Args, Debug)]
pub(crate) struct PeerArgs {
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Do not verify the server's certificate (the output says so)
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Server name to send (SNI) and to expect in the certificate [default: the host of ADDR]
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// Client certificate chain (PEM), for a server that requests one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key (PEM) of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Start TLS within this protocol, which begins in plaintext. Without --send a connection then
    /// sends a command that the server answers without a login
    #[arg(long, value_name = "PROTOCOL", value_parser = starttls(), conflicts_with = "http")]
    pub(crate) starttls: Option<Starttls>,
    /// With HTTP: a status of 400 or above is an answer too, not a failure
    #[arg(long)]
    pub(crate) any_status: bool,
}

fn starttls() -> impl TypedValueParser<Value = Starttls> {
    PossibleValuesParser::new(Starttls::ALL.map(Starttls::name))
        .try_map(|name| Starttls::named(&name).ok_or_else(|| format!("unknown protocol {name}")))
}

impl PeerArgs {
    /// Returns the authorities of `--ca`, those of the system, or no verification.
    pub(crate) fn trust(&self) -> Result<Trust, Error> {
        Ok(match &self.ca {
            Some(path) => {
                let text =
                    dormouse_engine::PemFile::read_trust(path).and_then(|file| file.authorities());
                Trust::Pem(text.map_err(|error| Error::usage(format!("--ca: {error}")))?)
            }
            None if self.insecure => Trust::Insecure,
            None => Trust::System,
        })
    }

    /// Returns whether any status is an answer, which needs HTTP: `bench request` uses it without
    /// --http, too.
    pub(crate) fn any_status(&self, is_http: bool) -> Result<bool, Error> {
        match (self.any_status, is_http) {
            (true, false) => Err(Error::usage("--any-status needs --http")),
            (any_status, _) => Ok(any_status),
        }
    }

    /// Returns the client certificate. Loads it once here, so that an invalid one is not blamed on
    /// the server.
    pub(crate) fn identity(&self) -> Result<Option<IdentityFiles>, Error> {
        let (Some(certificate), Some(key)) = (self.cert.clone(), self.key.clone()) else {
            return Ok(None);
        };
        dormouse_engine::Identity::from_files(&certificate, &key)
            .map_err(|error| Error::usage(format!("--cert, --key: {error}")))?;
        Ok(Some(IdentityFiles { certificate, key }))
    }
}

/// What counts as an answer.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExpectArg {
    /// The same bytes
    Echo,
    /// Any byte
    Any,
    /// Nothing at all
    None,
}

impl From<ExpectArg> for Expect {
    fn from(expect: ExpectArg) -> Self {
        match expect {
            ExpectArg::Echo => Self::Echo,
            ExpectArg::Any => Self::Any,
            ExpectArg::None => Self::Nothing,
        }
    }
}
