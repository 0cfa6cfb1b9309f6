//! Landlock: which files may be opened, which ports bound, whom a signal may reach.

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};

/// What the resolver of names reads. All of /etc: a rule holds for the file that is there now, not
/// for one that is put in its place, and resolv.conf is.
pub(super) const FOR_NAMES: &[&str] = &[
    "/etc",
    // Where resolv.conf leads to, with systemd and others.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    // Modules of the resolver.
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// What is confined. A newer kernel could do more; what is asked for here has been tried.
const TESTED: ABI = ABI::V6;

/// Confines this thread and those that it starts: only what lies under `readable` may be opened,
/// and to read only; no TCP port may be bound but one that the kernel chooses; no signal reaches,
/// and no debugger looks into, a process that is not confined with it, and no connection leads to an
/// abstract unix socket of one. Older kernels know less of this.
pub(super) fn confine(readable: &[&str], reaches_abstract: bool) -> io::Result<()> {
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
            // Where a connection to a backend comes from: an address is chosen, its port is not.
            .add_rule(NetPort::new(0, AccessNet::BindTcp))?;
        ruleset.restrict_self()
    };
    let status = rules().map_err(io::Error::other)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no Landlock",
        ));
    }
    Ok(())
}

pub(super) fn supported() -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::ReadFile);
    ruleset.and_then(|ruleset| ruleset.create()).is_ok()
}
