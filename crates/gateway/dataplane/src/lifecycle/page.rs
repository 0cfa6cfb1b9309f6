//! Pages of connections: lists, counts or closes some of them, as an administrator orders.
//!
//! A page is a bounded number of slots, and so of system calls and of steps, so other connections do not wait long for
//! it. The worker keeps nothing between two pages. What is not in the slot comes from the sockets and, if there is one,
//! from the connection's entry for the log.

use crate::client::ConnectionId;
use crate::close_reason::CloseReason;
use crate::connection_log;
use crate::door::admission;
use crate::established::Connections;
use crate::established::step::Event;
use crate::established::{close, deep_rest};
use crate::io::{Io, peer_address};
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_engine::ServerContext;
use dormouse_handover::connections::{
    AgeGroups, CLOSED_MAX, CertificateProperty, ConnectionFilter, ConnectionRow, ConnectionState,
    Page, PageAction, PageOrder, PagePlace, ROWS_MAX, SLOTS_PER_PAGE,
};
use dormouse_handover::fingerprint::ShortFingerprint;
use dormouse_handover::log_entries::LogEntry;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Peer;
use dormouse_record::Role;
use dormouse_routes::route::Route;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Makes the page that was ordered.
pub(crate) fn make<I: Io>(
    order: &PageOrder,
    connections: &mut Connections,
    settings: &Settings,
    work: &mut Workspace<I>,
) -> Page {
    let filter = Filter::new(&order.filter, settings, work);
    let mut page = Page {
        ages: (order.action == PageAction::CountAges).then(AgeGroups::default),
        ..Page::default()
    };
    let mut below = order.from.below;
    for _ in 0..SLOTS_PER_PAGE {
        let Some(index) = connections.slots().last_live(below) else {
            return page;
        };
        below = index;
        // A connection of a predecessor whose sockets are others is freed by this.
        if connections.verify(index, work) {
            note(
                index,
                order.action,
                &filter,
                &mut page,
                connections,
                settings,
                work,
            );
        }
        if is_full(order.action, &page) {
            break;
        }
    }
    page.next = Some(PagePlace {
        below,
        ..order.from
    });
    page
}

fn is_full(action: PageAction, page: &Page) -> bool {
    match action {
        PageAction::List => page.rows.len() >= ROWS_MAX,
        PageAction::Count | PageAction::CountAges => false,
        PageAction::Close(most) => page.closed >= most.min(CLOSED_MAX),
    }
}

/// Notes one connection on the page, if it is one that was asked for.
fn note<I: Io>(
    index: u32,
    action: PageAction,
    filter: &Filter<'_>,
    page: &mut Page,
    connections: &mut Connections,
    settings: &Settings,
    work: &mut Workspace<I>,
) {
    let slot = connections.slots().at(index);
    let closes = matches!(action, PageAction::Close(_));
    if !is_shown(slot) || (closes && slot.phase() == Phase::Draining) {
        return;
    }
    // What the slot alone rules out needs no facts, and neither does a number of all connections.
    if !filter.may_take(slot, settings, work) {
        return;
    }
    let needs_facts = action == PageAction::List || !filter.takes_all();
    let facts = needs_facts.then(|| Facts::of(index, slot, settings, work));
    let judge = |facts| filter.judge(slot, facts, work);
    match facts.as_ref().map_or(Some(true), judge) {
        Some(true) => page.matched += 1,
        Some(false) => return,
        None => {
            page.unknown += 1;
            return;
        }
    }
    match action {
        PageAction::List => page.rows.extend(facts.map(|facts| row(slot, &facts, work))),
        PageAction::Count => {}
        PageAction::CountAges => {
            let age_s = seconds_since(slot.opened_s, work);
            let ages = page.ages.get_or_insert_default();
            ages.count(slot.route, slot.backend, age_s);
        }
        PageAction::Close(_) => {
            let generation = slot.generation;
            let close = Event::CloseOne(CloseReason::ByAdmin);
            connections.step(index, close, settings, work);
            page.closed += 1;
            let left = connections.slots().get(index);
            let left = left.filter(|slot| slot.generation == generation);
            // One that rests ends when it is awake, without its backend.
            let needs_backend =
                |slot: &Slot| slot.phase() == Phase::Established && slot.is_joined();
            page.ending += u32::from(left.is_some_and(needs_backend));
        }
    }
}

/// Whether the slot is shown as a connection. The half of a connection that has its backend is not, and neither is one
/// that no client uses yet.
fn is_shown(slot: &Slot) -> bool {
    !close::is_backend_half(slot) && !matches!(slot.phase(), Phase::Free | Phase::Warm)
}

// ---- facts ----

/// Facts about a connection that are not in its slot.
struct Facts<'a> {
    route: &'a Route,
    entry: Option<LogEntry>,
    fd_of_client: Fd,
    fd_of_backend: Fd,
    /// The client's address, if its connection has no socket.
    resting_client: Option<SocketAddr>,
}

/// The client of a connection.
#[derive(Clone, Copy)]
enum Client {
    Address(SocketAddr),
    Unix,
    /// Its address came from a proxy and is only in the log, or its socket was reset.
    Unknown,
}

impl<'a> Facts<'a> {
    fn of<I: Io>(
        index: u32,
        slot: &Slot,
        settings: &'a Settings,
        work: &mut Workspace<I>,
    ) -> Facts<'a> {
        let (fd_of_client, fd_of_backend) = match slot.tls.role() {
            Role::Server => (slot.tls_fd(), slot.plain_fd()),
            Role::Client => (slot.plain_fd(), slot.tls_fd()),
        };
        Facts {
            route: settings.route_or_removed(slot.route),
            entry: work.connection_log.entry_of(index, slot).cloned(),
            fd_of_client,
            fd_of_backend,
            resting_client: deep_rest::address_of_client(slot, work),
        }
    }

    fn client(&self, io: &impl Io) -> Client {
        if let Some(entry) = self.entry.as_ref().filter(|entry| entry.has_client()) {
            return entry.client().map_or(Client::Unix, Client::Address);
        }
        let proxies = &self.route.access.accept_proxy_from;
        let peer = match self.resting_client {
            Some(address) => Ok(Peer::Tcp(address)),
            None => io.peer(self.fd_of_client),
        };
        match peer {
            Ok(Peer::Tcp(peer)) if proxies.iter().any(|net| net.contains(peer.ip())) => {
                Client::Unknown
            }
            Ok(Peer::Tcp(peer)) => Client::Address(peer),
            Ok(Peer::Unix) => Client::Unix,
            Err(_) => Client::Unknown,
        }
    }

    /// The backend's address, as in the connection log.
    fn backend(&self, slot: &Slot, io: &impl Io) -> Option<String> {
        let targets = self.route.targets();
        let mut targets = targets.iter().flat_map(|targets| &targets.all);
        let known = targets.find(|target| slot.backend != 0 && target.place == slot.backend);
        known.map(|target| target.name.clone()).or_else(|| {
            let is_socket = !slot.is_joined() && self.fd_of_backend != Fd::NONE;
            let peer = is_socket.then(|| peer_address(io, self.fd_of_backend))?;
            peer.map(|peer| peer.to_string())
        })
    }
}

fn row<I: Io>(slot: &Slot, facts: &Facts<'_>, work: &Workspace<I>) -> ConnectionRow {
    let has_tls = !slot.has(Flag::PassThrough);
    let entry = facts.entry.as_ref();
    ConnectionRow {
        id: ConnectionId::of(slot, work.id_seed).to_string(),
        route: facts.route.name.clone(),
        client: match facts.client(&work.io) {
            Client::Address(address) => Some(address),
            Client::Unix | Client::Unknown => None,
        },
        backend: facts.backend(slot, &work.io),
        sni: entry.and_then(connection_log::server_name),
        certificate: entry.and_then(LogEntry::certificate),
        peer_certificate: entry.and_then(LogEntry::peer_certificate),
        alpn: entry.and_then(connection_log::protocol),
        version: has_tls.then(|| slot.tls.version().name().to_owned()),
        suite: entry.and_then(connection_log::suite).map(str::to_owned),
        resumed: entry.filter(|_| has_tls).map(LogEntry::resumed),
        bytes_in: entry.map(|entry| entry.received),
        bytes_out: entry.map(|entry| entry.sent),
        age_s: seconds_since(slot.opened_s, work),
        idle_s: seconds_since(slot.active_s, work),
        state: state(slot),
        resting: slot.is_dormant(),
    }
}

fn state(slot: &Slot) -> ConnectionState {
    match slot.phase() {
        Phase::Connecting => ConnectionState::Connecting,
        Phase::Draining => ConnectionState::Closing,
        _ if slot.at_rest() => ConnectionState::AtRest,
        _ => ConnectionState::Pending,
    }
}

fn seconds_since<I>(then_s: u32, work: &Workspace<I>) -> u64 {
    (work.now_ms / 1000).saturating_sub(then_s.into())
}

// ---- the filter ----

/// A filter, with the backends' places in the table of backends.
struct Filter<'a> {
    asked: &'a ConnectionFilter,
    places: Vec<u16>,
    /// If a certificate's name is asked for: all loaded certificates, and whether each has this name.
    loaded: HashMap<ShortFingerprint, bool>,
}

impl<'a> Filter<'a> {
    fn new<I>(asked: &'a ConnectionFilter, settings: &Settings, work: &Workspace<I>) -> Filter<'a> {
        let places = asked.backends.iter();
        let places = places.map(|address| work.backends.place(address));
        Filter {
            asked,
            places: places.filter(|place| *place != 0).collect(),
            loaded: match &asked.certificate {
                Some(CertificateProperty::Name(name)) => loaded_with(name, settings),
                _ => HashMap::new(),
            },
        }
    }

    /// Whether no property is asked for.
    fn takes_all(&self) -> bool {
        *self.asked == ConnectionFilter::default()
    }

    /// Whether the connection may have all properties, by its slot and its route alone.
    fn may_take<I>(&self, slot: &Slot, settings: &Settings, work: &Workspace<I>) -> bool {
        let route = settings.route_or_removed(slot.route);
        let is_so_old = |then_s: u32, least_ms: Option<u64>| {
            let since_ms = work.now_ms.saturating_sub(u64::from(then_s) * 1000);
            least_ms.is_none_or(|least_ms| since_ms >= least_ms)
        };
        let has_id = |id: &String| ConnectionId::of(slot, work.id_seed).to_string() == *id;
        (self.asked.route.as_ref()).is_none_or(|name| route.name == *name)
            && is_so_old(slot.opened_s, self.asked.older_ms)
            && is_so_old(slot.active_s, self.asked.idle_ms)
            && self.asked.id.as_ref().is_none_or(has_id)
            && (!self.asked.refused || has_rules(route))
    }

    /// Whether a connection that [`Filter::may_take`] has all properties. `None`: a fact is missing that decides.
    fn judge<I: Io>(&self, slot: &Slot, facts: &Facts<'_>, work: &Workspace<I>) -> Option<bool> {
        if !self.has_backend(slot, facts, &work.io) {
            return Some(false);
        }
        let rest = [
            self.has_client(facts, &work.io),
            self.has_name(facts),
            self.has_certificate(slot, facts),
            self.would_be_refused(facts, &work.io),
        ];
        match rest.contains(&Some(false)) {
            true => Some(false),
            false => rest.iter().all(Option::is_some).then_some(true),
        }
    }

    fn has_backend(&self, slot: &Slot, facts: &Facts<'_>, io: &impl Io) -> bool {
        let asked = &self.asked.backends;
        if asked.is_empty() {
            return true;
        }
        match slot.backend {
            // The server of an origination has no place.
            0 => facts
                .backend(slot, io)
                .is_some_and(|backend| asked.contains(&backend)),
            place => self.places.contains(&place),
        }
    }

    fn has_client(&self, facts: &Facts<'_>, io: &impl Io) -> Option<bool> {
        let Some(network) = self.asked.client else {
            return Some(true);
        };
        match facts.client(io) {
            Client::Address(address) => Some(network.contains(address.ip())),
            Client::Unix => Some(false),
            Client::Unknown => None,
        }
    }

    fn has_name(&self, facts: &Facts<'_>) -> Option<bool> {
        let Some(asked) = &self.asked.name else {
            return Some(true);
        };
        let entry = facts.entry.as_ref()?;
        let Some((name, is_cut)) = entry.sni() else {
            return Some(false);
        };
        match is_cut {
            // Only its beginning is known.
            true => None,
            false => Some(is_name(asked, name)),
        }
    }

    /// Whether the route would not admit the client now, by its address or by its certificate.
    fn would_be_refused(&self, facts: &Facts<'_>, io: &impl Io) -> Option<bool> {
        let (route, access) = (facts.route, &facts.route.access);
        if !self.asked.refused {
            return Some(true);
        }
        let by_address = match access.allow.is_empty() && access.deny.is_empty() {
            true => Some(false),
            false => match facts.client(io) {
                Client::Address(address) => Some(!admission::is_allowed(route, address.ip())),
                Client::Unix => Some(false),
                Client::Unknown => None,
            },
        };
        let standings = route.context().and_then(ServerContext::standings);
        let standings = standings.filter(|standings| standings.may_refuse());
        let by_certificate = match (standings, &facts.entry) {
            (None, _) => Some(false),
            (Some(standings), Some(entry)) => {
                let standing = entry.standing();
                Some(standing.is_some_and(|standing| !standings.admit(standing)))
            }
            (Some(_), None) => None,
        };
        match [by_address, by_certificate] {
            [Some(true), _] | [_, Some(true)] => Some(true),
            [Some(false), Some(false)] => Some(false),
            _ => None,
        }
    }

    /// Of a certificate that is not loaded any more, only the fingerprint is known.
    fn has_certificate(&self, slot: &Slot, facts: &Facts<'_>) -> Option<bool> {
        let Some(asked) = &self.asked.certificate else {
            return Some(true);
        };
        if slot.has(Flag::PassThrough) {
            return Some(false);
        }
        let entry = facts.entry.as_ref()?;
        match asked {
            CertificateProperty::Name(_) => match entry.certificate() {
                Some(certificate) => self.loaded.get(&certificate).copied(),
                None => Some(false),
            },
            CertificateProperty::Fingerprint(asked) => {
                let both = [entry.certificate(), entry.peer_certificate()];
                Some(both.contains(&Some(*asked)))
            }
        }
    }
}

/// Whether a route may refuse a client that it has admitted.
fn has_rules(route: &Route) -> bool {
    let access = &route.access;
    let standings = route.context().and_then(ServerContext::standings);
    !access.allow.is_empty()
        || !access.deny.is_empty()
        || standings.is_some_and(|standings| standings.may_refuse())
}

/// All certificates that the routes have, and whether each has this name, which is in lower case.
fn loaded_with(name: &str, settings: &Settings) -> HashMap<ShortFingerprint, bool> {
    let contexts = settings
        .routes
        .iter()
        .filter_map(|(_, route)| route.context());
    let all = contexts.flat_map(ServerContext::certificates);
    all.map(|(fingerprint, names)| {
        let has_name = names.iter().any(|one| one == name);
        (ShortFingerprint::of(fingerprint), has_name)
    })
    .collect()
}

/// Whether a name is the one asked for, or below it: `*.example.com`.
fn is_name(asked: &str, name: &str) -> bool {
    let Some(parent) = asked.strip_prefix('*').filter(|rest| rest.starts_with('.')) else {
        return asked.eq_ignore_ascii_case(name);
    };
    let end = name.len().checked_sub(parent.len()).filter(|&len| len > 0);
    let end = end.and_then(|at| name.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(parent))
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn a_name_is_compared_as_a_whole_or_by_its_parent() {
        for (asked, name, fits) in [
            ("shop.example.com", "Shop.Example.com", true),
            ("shop.example.com", "shop.example.co", false),
            ("*.example.com", "shop.EXAMPLE.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.example.com", "notexample.com", false),
            ("*example.com", "notexample.com", false),
            ("example.com", "shop.example.com", false),
        ] {
            assert_eq!(is_name(asked, name), fits, "{asked} {name}");
        }
    }
}
