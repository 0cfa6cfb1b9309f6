//! `dormouse upgrade`: replaces the binary of a running `serve`.

use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use crate::admin::{self, Exit, encoded};
use crate::arguments::UpgradeArgs;
use crate::exit_status::ExitStatus;
use crate::terminal;

pub(crate) fn run(args: &UpgradeArgs) -> Exit {
    let mut path = "/upgrade".to_owned();
    if let Some(binary) = &args.binary {
        // The running program may have another working directory.
        let binary = binary.canonicalize().map_err(|error| -> ExitCode {
            terminal::error(format_args!("{}: {error}", binary.display()));
            ExitStatus::Misused.into()
        })?;
        path = format!("{path}?binary={}", encoded(binary.as_os_str().as_bytes()));
    }
    admin::run_order(&args.admin, &path)
}
