//! `dormouse trace`: has a running `serve` log handshakes and ends of the connections with some clients.

use clap::Args;

use crate::admin::{self, AdminArgs, Exit, encoded};

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Clients in this network, such as 10.0.0.0/8, or with this address
    #[arg(long, value_name = "NETWORK")]
    client: String,

    /// For this long, at most an hour
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    time: String,

    #[command(flatten)]
    admin: AdminArgs,
}

pub(crate) fn run(args: &TraceArgs) -> Exit {
    let (client, time) = (encoded(&args.client), encoded(&args.time));
    admin::run_order(&args.admin, &format!("/trace?client={client}&for={time}"))
}
