//! The addresses that a configuration needs: whether this machine has them, and whether they are free.

use super::holder::{self, Holder};
use crate::configuration::occasion::{Occasion, Occupied, Purpose, of_privilege};
use crate::material::directories::directory_of;
use crate::material::findings::Findings;
use crate::sockets::control_addresses::is_orphaned;
use crate::sockets::listening;
use crate::sockets::systemd::InheritedListeners;
use dormouse_config::{
    Admin, Config, MetricsAddress, Place, PlainListen, Severity, SourceAddress, listen_item,
    listeners_overlap, metrics_overlap,
};
use dormouse_reactor::process;
use dormouse_reactor::socket::{self, Addr};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

/// Tries to listen on the addresses.
pub(super) fn examine(config: &Config, occasion: &Occasion<'_>, findings: &mut Findings) {
    let occupied = (occasion.occupied)(config);
    let try_one = |address: &Addr, place: Place, findings: &mut Findings| {
        if occupied.listeners.contains(&address.to_string()) {
            return;
        }
        match own_overlap(address, &occupied) {
            Some(own) => {
                let what = format!(
                    "cannot listen on {address}: this program listens on {own}\na reload cannot replace an address by one that includes it or is part of it: restart, or use another port"
                );
                findings.refusal(place, Severity::Error, what);
            }
            None => listener(address, place, (config, occasion.purpose), findings),
        }
    };
    for (index, route) in config.routes.iter().enumerate() {
        for (at, listen) in route.listen.iter().enumerate() {
            let item = listen_item(&route.listen, at);
            let place = Place::of_route(index, "listen").item(item);
            try_one(&Addr::Tcp(listen.address), place, findings);
        }
        sources(index, &route.source_addresses, findings);
    }
    for (index, originate) in config.originate.iter().enumerate() {
        for listen in &originate.listen {
            let place = Place::of_origination(index, "listen");
            match listen {
                PlainListen::Tcp(listen) => try_one(&Addr::Tcp(listen.address), place, findings),
                PlainListen::Unix(path) => {
                    let address = Addr::Unix(path.clone());
                    if !occupied.listeners.contains(&address.to_string()) {
                        let context = (config, occasion.purpose);
                        unix_listener(path, "the listener's socket", place, context, findings);
                    }
                }
            }
        }
    }
    for listen in &config.redirect.redirect {
        let place = Place::Program("redirect");
        try_one(&Addr::Tcp(listen.address), place, findings);
    }
    admin(config, &occupied, occasion.purpose, findings);
}

/// The program's own address that shares clients with this one, so that no socket can be opened for it.
fn own_overlap(address: &Addr, occupied: &Occupied) -> Option<SocketAddr> {
    let Addr::Tcp(address) = address else {
        return None;
    };
    own_addresses(occupied).find(|own| listeners_overlap(*own, *address))
}

fn own_addresses(occupied: &Occupied) -> impl Iterator<Item = SocketAddr> {
    occupied.listeners.iter().flat_map(|own| own.parse())
}

/// Tries the addresses of control. A reload does not open other ones: they take effect at the next start, which must not
/// fail then.
fn admin(config: &Config, occupied: &Occupied, purpose: Purpose, findings: &mut Findings) {
    let process = &config.process;
    let is_own = occupied.admin.as_ref() == Some(&process.admin);
    match &process.admin {
        Admin::Unix(path) if !is_own && !is_orphaned(path) => {
            let (place, context) = (Place::Program("admin"), (config, purpose));
            unix_listener(path, "the admin socket", place, context, findings);
        }
        Admin::Unix(_) | Admin::Auto | Admin::None | Admin::Loopback(_) => {}
    }
    if let Some(MetricsAddress(address)) = process.metrics {
        let own = occupied.metrics.map(|MetricsAddress(own)| own);
        let mut own = own_addresses(occupied).chain(own);
        // The program's own addresses are free at the next start.
        if !own.any(|own| metrics_overlap(address, own)) {
            let place = Place::Program("metrics");
            let address = Addr::Tcp(address);
            let tried = socket::try_listen(&address, false);
            not_listening(tried, &address, place, (config, purpose), findings);
        }
    }
}

/// Reports a unix socket that cannot be made: its directory, or what already has its path.
fn unix_listener(
    path: &Path,
    what: &str,
    place: Place,
    context: (&Config, Purpose),
    findings: &mut Findings,
) {
    directory_of(path, what, place, findings);
    if path.symlink_metadata().is_ok() {
        listener(&Addr::Unix(path.to_owned()), place, context, findings);
    }
}

/// Tries source addresses now, so that connects do not fail later.
fn sources(index: usize, given: &[SourceAddress], findings: &mut Findings) {
    for (item, source) in given.iter().enumerate() {
        let SourceAddress::Address(ip) = source else {
            continue;
        };
        if let Err(error) = UdpSocket::bind((*ip, 0)) {
            let hint = listening::hint(&Addr::Tcp((*ip, 0).into()), &error);
            let what = format!(
                "cannot connect to a backend from {ip} (source_addresses): {error}\n{hint}"
            );
            let place = Place::of_route(index, "source_addresses").item(item);
            findings.refusal(place, Severity::Error, what);
        }
    }
}

/// Reports an address that cannot be listened on.
fn listener(address: &Addr, place: Place, context: (&Config, Purpose), findings: &mut Findings) {
    let tried = socket::try_listen(address, true);
    not_listening(tried, address, place, context, findings);
}

fn not_listening(
    tried: io::Result<()>,
    address: &Addr,
    place: Place,
    (config, purpose): (&Config, Purpose),
    findings: &mut Findings,
) {
    let Err(error) = tried else {
        return;
    };
    let mut severity = Severity::Error;
    let mut what = format!("cannot listen on {address}: {error}");
    let mut hint = listening::hint(address, &error).to_owned();
    if error.kind() == io::ErrorKind::PermissionDenied {
        severity = of_privilege(purpose);
        if let Addr::Tcp(address) = address {
            // One mistake for both families of `:443`.
            what = format!("cannot listen on port {}: {error}", address.port());
        }
        if let Some(others) = InheritedListeners::from_environment().handed_in() {
            what = format!(
                "cannot listen on {address}: {error}; systemd passed no socket for it, only {others}"
            );
            listening::NOT_PASSED.clone_into(&mut hint);
        }
    }
    if error.kind() == io::ErrorKind::AddrInUse {
        match holder::of(address) {
            // systemd will pass this socket.
            Holder::Process { name, .. } if name == "systemd" && purpose == Purpose::Check => {
                return;
            }
            Holder::Process { pid, name } => {
                what = format!("cannot listen on {address}: address in use by {name} (pid {pid})");
                "stop it, or choose another port".clone_into(&mut hint);
                let may_be_it = name.starts_with("dormouse") && config.process.admin == Admin::None;
                if may_be_it && purpose == Purpose::Check {
                    severity = Severity::Warning;
                    "this is expected if it runs this configuration".clone_into(&mut hint);
                }
            }
            Holder::OtherUser if purpose == Purpose::Check && process::user_id() != 0 => {
                severity = Severity::Warning;
                "another user's process listens there: this is expected if it runs this configuration"
                    .clone_into(&mut hint);
            }
            Holder::OtherUser | Holder::Unknown => {}
        }
    }
    findings.refusal(place, severity, format!("{what}\n{hint}"));
}
