//! Landlock: which files may be opened, which ports bound, and which processes signalled.

use std::io;

use super::OwnPorts;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, RestrictionStatus,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

/// Paths that the name resolver reads. All of /etc, because a rule applies to the existing file and not to a
/// replacement, and resolv.conf gets replaced.
pub(super) const FOR_NAMES: &[&str] = &[
    "/etc",
    // The target of resolv.conf, with systemd and others.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    // Resolver modules.
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// The tested Landlock version. A newer kernel could restrict more.
const TESTED: ABI = ABI::V6;

/// Confines this thread and the threads that it starts: it may open only files under `readable`, for reading only; bind
/// TCP ports only if the kernel chooses them, or if they are `ports`; and must not signal, debug, or connect to an
/// abstract unix socket of, a process outside. Older kernels enforce less.
pub(super) fn confine(
    readable: &[&str],
    reaches_abstract: bool,
    ports: OwnPorts,
) -> io::Result<()> {
    let rules = || {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(TESTED))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::Signal)?;
        let ruleset = match reaches_abstract {
            true => ruleset,
            false => ruleset.scope(Scope::AbstractUnixSocket)?,
        };
        let ruleset = ruleset
            .create()?
            .add_rules(path_beneath_rules(readable, AccessFs::from_read(TESTED)))?
            // The local end of a connection to a backend: its address may be chosen, its port may not.
            .add_rule(NetPort::new(0, AccessNet::BindTcp))?
            .add_rules(
                ports
                    .all()
                    .map(|port| Ok::<_, RulesetError>(NetPort::new(port, AccessNet::BindTcp))),
            )?;
        ruleset.restrict_self()
    };
    enforced(rules())
}

/// Confines as [`confine`] does, but leaves the ports to a process that must have them.
pub(super) fn confine_files() -> io::Result<()> {
    let rules = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(TESTED))?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?
            .restrict_self()
    };
    enforced(rules())
}

fn enforced(status: Result<RestrictionStatus, RulesetError>) -> io::Result<()> {
    match status.map_err(io::Error::other)?.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel does not support Landlock",
        )),
        _ => Ok(()),
    }
}

pub(super) fn supported() -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::ReadFile);
    ruleset.and_then(|ruleset| ruleset.create()).is_ok()
}
