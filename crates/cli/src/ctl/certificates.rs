//! `dormouse ctl push-certificate` and related commands: certificates that are served without files.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse_engine::{Identity, IdentityError, PemFile};
use dormouse_handover::status::{CertificateStatus, Status};
use zeroize::Zeroizing;

use crate::admin::{self, AdminAddress, AdminArgs, Exit, encoded, failed};
use crate::exit_status::ExitStatus;
use crate::{table, terminal};

/// A certificate to push.
#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// Certificate chain as PEM, leaf first; without --key, the file also has the private key
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,

    /// Private key of the certificate, as PEM
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Use it only in the route of this name; routes without a name are numbered from 1 [default: all
    /// routes that have a certificate for one of its names]
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    #[command(flatten)]
    admin: AdminArgs,
}

/// A certificate to withdraw.
#[derive(Debug, Args)]
pub(super) struct WithdrawArgs {
    /// A name in the certificate
    name: String,

    /// Withdraw it from the route of this name only
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn push(args: &PushArgs) -> Exit {
    let body = pem_text(args).map_err(|why| -> ExitCode {
        terminal::error(why);
        ExitStatus::Misused.into()
    })?;
    let route = args.route.as_deref().map(encoded);
    let query = route.map_or(String::new(), |route| format!("?route={route}"));
    admin::run_order_with(&args.admin, &format!("/certificates{query}"), &body)
}

/// Returns the chain followed by the key. Main checks both too, but only this check can name the files.
fn pem_text(args: &PushArgs) -> Result<Zeroizing<String>, IdentityError> {
    let key = args.key.as_ref().unwrap_or(&args.cert);
    Identity::from_files(&args.cert, key)?;
    let (chain, key) = (
        PemFile::read(&args.cert)?.chain()?,
        PemFile::read(key)?.key()?,
    );
    let mut both = Zeroizing::new(String::with_capacity(chain.len() + key.len()));
    both.push_str(&chain);
    both.push_str(&key);
    Ok(both)
}

pub(super) fn withdraw(args: &WithdrawArgs) -> Exit {
    let route = args.route.as_deref().map(encoded);
    let route = route.map_or(String::new(), |route| format!("&route={route}"));
    let path = format!("/certificates/withdraw?name={}{route}", encoded(&args.name));
    admin::run_order(&args.admin, &path)
}

/// Lists the certificates that clients receive.
pub(super) fn list(args: &AdminArgs) -> Exit {
    let status = AdminAddress::find(&args.instance)?.question::<Status>("/status");
    let certificates = status.map_err(failed)?.certificates.unwrap_or_default();
    if args.json {
        terminal::print_json(&certificates);
    } else {
        terminal::print(&dormouse_printable::lines(&table(&certificates)).to_string());
    }
    Ok(ExitCode::SUCCESS)
}

fn table(certificates: &[CertificateStatus]) -> String {
    const DAY_S: i64 = 86_400;
    let mut rows = vec![["name", "days left", "from"].map(str::to_owned)];
    for one in certificates {
        let days = one.expires_in_s.div_euclid(DAY_S);
        rows.push([one.name.clone(), days.to_string(), one.file.clone()]);
    }
    table::columns(&rows, [false, true, false])
}
