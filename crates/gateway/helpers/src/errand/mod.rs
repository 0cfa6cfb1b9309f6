//! An errand: a short-lived process without privileges that queries OCSP responders and ACME servers,
//! so that main and the workers never parse their responses.
//!
//! When the process starts, its jobs are already queued in its channel. It sends its reports through the
//! same channel and exits. Main kills an errand that takes too long.
//!
//! ```text
//!   messages  jobs and reports
//!   http      one request, bounded in time and bytes      ocsp   revocation status of a certificate
//!   acme      certificates, and when to renew them       dns_update, tsig   the records of dns-01
//! ```

mod acme;
pub(crate) mod dns_update;
pub(crate) mod http;
mod messages;
mod ocsp;
pub mod tsig;

pub use messages::{
    Account, AccountBinding, AcmeServer, CertificateRequest, Challenge, DnsUpdates, DnsWay,
    ErrandArguments, ErrandReport, IssuedCertificate, Job, NoResponse, OrderFailure, OrderState,
    PlacedOrder, RenewalQuery, RenewalWindow,
};

use crate::helper::{self, Privileges};
use crate::tls_file;
use acme::AcmeClient;
use dormouse_config::Log;
use dormouse_handover::message;
use dormouse_reactor::Fd;
use dormouse_reactor::sandbox::Role;
use ocsp::Responders;
use std::io;
use std::process::ExitCode;

/// Entry point of the process; `args` is what follows the subcommand. `None`: main did not start it.
pub fn process_entry(args: &[String], start_logs: fn(&Log)) -> Option<ExitCode> {
    helper::run("errand", args, start_logs, run)
}

fn run(privileges: &Privileges, arguments: &ErrandArguments) -> io::Result<()> {
    privileges.confine(Role::Scout)?;
    let channel = Fd(arguments.channel);
    let connector = arguments.tls.map(|file| tls_file::connector(Fd(file)));
    let mut acme = connector
        .transpose()?
        .map(|connector| AcmeClient::new(connector, channel));
    let mut responders = Responders::default();
    while let Some(job) = message::receive(channel)? {
        if let Some(report) = perform(job, &mut responders, acme.as_mut()) {
            helper::report(channel, &report)?;
        }
    }
    Ok(())
}

fn perform(
    job: Job,
    responders: &mut Responders,
    acme: Option<&mut AcmeClient>,
) -> Option<ErrandReport> {
    match (job, acme) {
        (Job::Ocsp { id, chain }, _) => Some(ErrandReport::Ocsp {
            id,
            response: responders.ask(&chain),
        }),
        (Job::Obtain(request), Some(acme)) => Some(ErrandReport::Certificate {
            issued: acme.obtain(&request),
            name: request.name,
        }),
        (Job::AskRenewal(query), Some(acme)) => Some(ErrandReport::Renewal {
            window: acme.ask_renewal(&query),
            name: query.name,
        }),
        (Job::Obtain(_) | Job::AskRenewal(_) | Job::Proceed | Job::Refused(_), _) => None,
    }
}
