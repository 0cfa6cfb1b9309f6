//! Ticket keys in main: their source, their rotation, and their distribution.
//!
//! ```text
//!   memory   generated and rotated here
//!   file     own format: rotated here, written there, encrypted with a secret
//!            other formats (nginx, HAProxy): read, never changed
//!   store    rotated by the first machine of the fleet that finds a rotation due: see `fleet`
//! ```

mod file;
mod foreign;

use crate::material;
use crate::material::directories::directory_of;
use crate::material::findings::Findings;
use dormouse_config::{Config, KeySource, Place, StoreAddress, Tickets};
use dormouse_engine::{TicketKeys, UnixTime};
use dormouse_handover::Pem;
use dormouse_helpers::fleet::{Secret, StoreLink, StoreSettings};
use dormouse_helpers::helper::RestartTimer;
use dormouse_reactor::Fd;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_tables::counters::Common;
use file::OwnFile;
use std::path::PathBuf;
use std::time::Duration;

/// The keys, and their source.
pub(crate) struct Keyring {
    keys: TicketKeys,
    /// The certificate for a store.
    identity: Option<Pem>,
    origin: Origin,
}

enum Origin {
    Memory,
    Own(OwnFile),
    /// Files in other programs' formats.
    Foreign(Vec<PathBuf>),
    Store(Box<StoreLink>),
    /// After an upgrade: the file or store of the old binary, as soon as it can be used.
    Sought(RestartTimer),
}

impl Keyring {
    /// Reads or generates the keys. Waits for a store only for a moment.
    pub(crate) fn open(
        config: &Config,
        identity: Option<Pem>,
        now: UnixTime,
        shared: &Shared,
    ) -> Result<Keyring, Vec<String>> {
        let tickets = &config.tickets;
        let (keys, origin) = match tickets.ticket_keys.first() {
            Some(KeySource::File(_)) => {
                let secret = match &tickets.ticket_secret_file {
                    Some(path) => Some(Secret::read(path).map_err(|why| vec![why])?),
                    None => None,
                };
                Keyring::from_files(&paths(tickets), secret, tickets, now)?
            }
            Some(KeySource::Store(address)) => {
                let fresh = fresh(tickets, now)?;
                let link = Keyring::link(config, address, identity.clone(), &fresh);
                let mut link = link.map_err(|why| vec![why])?;
                // A short wait, so that a restarted machine has the fleet's keys before it serves.
                let keys = link.first(shared).unwrap_or(fresh);
                (keys, Origin::Store(Box::new(link)))
            }
            Some(KeySource::Memory) | None => (fresh(tickets, now)?, Origin::Memory),
        };
        let ring = Keyring {
            keys,
            identity,
            origin,
        };
        ring.publish(shared);
        Ok(ring)
    }

    fn from_files(
        paths: &[PathBuf],
        secret: Option<Secret>,
        tickets: &Tickets,
        now: UnixTime,
    ) -> Result<(TicketKeys, Origin), Vec<String>> {
        if let ([path], Some(secret)) = (paths, secret)
            && let Some(found) = file::read_own(path, &secret).map_err(|why| vec![why])?
        {
            let mut keys = match found {
                Some(keys) => keys,
                None => fresh(tickets, now)?,
            };
            keys.set_period(now, tickets.ticket_rotation);
            keys.rotate_if_due(now).map_err(|e| vec![e.to_string()])?;
            let mut own = OwnFile::new(path.clone(), secret);
            // A full disk prevents no start.
            own.start_saving(&keys);
            own.wait(Duration::MAX);
            return Ok((keys, Origin::Own(own)));
        }
        Ok((foreign::read(paths)?, Origin::Foreign(paths.to_vec())))
    }

    /// Continues after an upgrade, with the keys that workers have. The first update seeks their source.
    pub(crate) fn adopt(keys: TicketKeys, identity: Option<Pem>) -> Keyring {
        let mut timer = RestartTimer::default();
        timer.set_due();
        Keyring {
            keys,
            identity,
            origin: Origin::Sought(timer),
        }
    }

    /// Seeks the keys' source, if that is due. There may be no room for a process for a moment, or a secret cannot be read:
    /// then the keys stay, and the next attempt follows.
    fn seek_origin(&mut self, config: &Config, now: UnixTime) {
        let Origin::Sought(timer) = &mut self.origin else {
            return;
        };
        if !timer.take_due() {
            return;
        }
        match Keyring::origin_of(config, self.identity.clone(), &self.keys) {
            Ok(origin) => {
                if matches!(origin, Origin::Own(_)) {
                    // A reload meanwhile may have changed it.
                    self.keys.set_period(now, config.tickets.ticket_rotation);
                }
                self.origin = origin;
            }
            Err(error) => {
                timer.failed();
                tracing::error!(error, "ticket key source unavailable; trying again");
            }
        }
    }

    /// The source of these keys, which the program has read from there.
    fn origin_of(
        config: &Config,
        identity: Option<Pem>,
        keys: &TicketKeys,
    ) -> Result<Origin, String> {
        let tickets = &config.tickets;
        Ok(match tickets.ticket_keys.first() {
            Some(KeySource::File(path)) => match &tickets.ticket_secret_file {
                Some(secret) if keys.rotates_at_s().is_some() => {
                    Origin::Own(OwnFile::new(path.clone(), Secret::read(secret)?))
                }
                _ => Origin::Foreign(paths(tickets)),
            },
            Some(KeySource::Store(address)) => {
                Origin::Store(Box::new(Keyring::link(config, address, identity, keys)?))
            }
            Some(KeySource::Memory) | None => Origin::Memory,
        })
    }

    fn link(
        config: &Config,
        address: &StoreAddress,
        identity: Option<Pem>,
        keys: &TicketKeys,
    ) -> Result<StoreLink, String> {
        let settings = store_settings(&config.tickets, address, identity)?;
        StoreLink::start(settings, keys, config)
            .map_err(|why| format!("ticket_keys = \"{address}\": {why}"))
    }

    /// Shows this certificate to a store from now on.
    pub(crate) fn show(&mut self, identity: &Option<Pem>) {
        if self.identity == *identity {
            return;
        }
        self.identity.clone_from(identity);
        if let Origin::Store(link) = &mut self.origin {
            link.set_identity(identity.clone());
        }
    }

    /// The current keys.
    pub(crate) fn keys(&self) -> &TicketKeys {
        &self.keys
    }

    fn store(&mut self) -> Option<&mut StoreLink> {
        match &mut self.origin {
            Origin::Store(link) => Some(link),
            _ => None,
        }
    }

    /// The channel of a newly started store process, for the caller to poll.
    pub(crate) fn new_channel(&mut self) -> Option<Fd> {
        self.store()?.new_channel()
    }

    /// Handles the exit of the store's process. Returns `false` if it was another process.
    pub(crate) fn ended(&mut self, pid: Pid, ended: Ended, shared: &Shared) -> bool {
        self.store()
            .is_some_and(|link| link.ended(pid, ended, shared))
    }

    /// Ends the store's process. Returns its id, for the caller to reap. The next turn starts another one.
    pub(crate) fn end_process(&mut self) -> Option<Pid> {
        self.store()?.end()
    }

    /// Time until the next action; `None`: never.
    pub(crate) fn until_due_ms(&self, now: UnixTime) -> Option<u64> {
        let (due_s, start_ms) = match &self.origin {
            // The store's process rotates; this applies only while the store gives no new keys.
            Origin::Store(link) => (self.own_rotation_from_s(), link.until_start_ms()),
            Origin::Sought(timer) => {
                let until_ms = |at_ms: u64| at_ms.saturating_sub(process::boottime_ms());
                (self.own_rotation_from_s(), timer.due_ms().map(until_ms))
            }
            _ => (self.keys.rotates_at_s(), None),
        };
        let until_ms = |due_s: u64| due_s.saturating_sub(now.as_secs()).saturating_mul(1000);
        due_s.map(until_ms).into_iter().chain(start_ms).min()
    }

    /// When this machine starts to rotate on its own, because the store gives no new keys, whatever the
    /// reason: after a whole period in which the fleet has encrypted with *next*. No key may be used for
    /// ever.
    fn own_rotation_from_s(&self) -> Option<u64> {
        let period_s = self.keys.period_s()?;
        Some(self.keys.rotates_at_s()?.saturating_add(period_s.into()))
    }

    /// Adopts the store's new keys, and rotates if a rotation is due. Returns `true` if the keys have changed.
    pub(crate) fn update(&mut self, config: &Config, now: UnixTime, shared: &Shared) -> bool {
        self.seek_origin(config, now);
        let mut changed = false;
        if let Origin::Store(link) = &mut self.origin {
            if let Some(news) = link.news(shared) {
                self.keys = news;
                changed = true;
            }
            link.start_if_due(&self.keys);
        }
        let is_due = match &self.origin {
            // The fleet's schedule: its machines' clocks must agree.
            Origin::Store(_) | Origin::Sought(_) => self.own_rotation_from_s(),
            _ => {
                // A clock that was set back must not put off the rotation.
                let planned_s = self.keys.rotates_at_s();
                let period_s = self.keys.period_s().unwrap_or_default();
                self.keys
                    .set_period(now, Duration::from_secs(period_s.into()));
                if self.keys.rotates_at_s() != planned_s {
                    self.publish(shared);
                }
                self.keys.rotates_at_s()
            }
        };
        if is_due.is_some_and(|due_s| due_s <= now.as_secs()) {
            changed |= self.rotate(now);
        }
        if changed {
            self.publish(shared);
        }
        changed
    }

    /// Reads other programs' key files again, for a reload. `None`: the keys have another source, and stay.
    pub(crate) fn read_again(&self) -> Result<Option<TicketKeys>, Vec<String>> {
        match &self.origin {
            Origin::Foreign(paths) => foreign::read(paths).map(Some),
            Origin::Memory | Origin::Own(_) | Origin::Store(_) | Origin::Sought(_) => Ok(None),
        }
    }

    /// Applies a reload, with what [`Keyring::read_again`] has returned.
    pub(crate) fn follow(
        &mut self,
        config: &Config,
        read: Option<TicketKeys>,
        now: UnixTime,
        shared: &Shared,
    ) {
        let rotation = config.tickets.ticket_rotation;
        match (&mut self.origin, read) {
            (_, Some(keys)) => self.keys = keys,
            (Origin::Memory | Origin::Own(_), None) => self.keys.set_period(now, rotation),
            // In effect from the next rotation.
            (Origin::Store(link), None) => link.set_rotation(rotation),
            (Origin::Foreign(_) | Origin::Sought(_), None) => {}
        }
        self.publish(shared);
    }

    /// Rotates now, on an administrator's order; [`Keyring::saved`] returns whether the new keys were saved. The error
    /// names the program that generates the keys, or the reason: nothing was rotated.
    pub(crate) fn rotate_now(&mut self, now: UnixTime, shared: &Shared) -> Result<(), String> {
        match &self.origin {
            Origin::Memory => {}
            Origin::Own(file) if file.is_saving() => {
                return Err(
                    "the previous ticket keys are not on the disk yet; try again later".to_owned(),
                );
            }
            Origin::Own(_) => {}
            Origin::Sought(_) => {
                return Err(
                    "the source of the ticket keys is unavailable; the log says why".to_owned(),
                );
            }
            Origin::Foreign(_) => {
                return Err("ticket keys come from a file that another program writes: \
                            let that program write new keys, then run `dormouse reload`"
                    .to_owned());
            }
            Origin::Store(_) => {
                return Err(
                    "ticket keys come from the fleet's store, which rotates them \
                                for all machines (ticket_rotation)"
                        .to_owned(),
                );
            }
        }
        let rotated = self.keys.rotate_now(now);
        rotated.map_err(|error| format!("ticket key rotation failed: {error}"))?;
        self.keep_rotated();
        self.publish(shared);
        Ok(())
    }

    fn rotate(&mut self, now: UnixTime) -> bool {
        match self.keys.rotate_if_due(now) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => {
                tracing::error!(%error, "ticket key rotation failed");
                return false;
            }
        }
        self.keep_rotated();
        true
    }

    /// Starts to save rotated keys where own keys are stored.
    fn keep_rotated(&mut self) {
        match &mut self.origin {
            Origin::Store(_) => tracing::warn!(
                "no new keys from the ticket store for a whole rotation; this machine rotates its own keys"
            ),
            Origin::Own(file) => file.start_saving(&self.keys),
            Origin::Memory | Origin::Foreign(_) | Origin::Sought(_) => {}
        }
    }

    /// Whether the keys of the last rotation were saved, or why not. `None`: the disk has not taken them yet.
    pub(crate) fn saved(&mut self) -> Option<Result<(), String>> {
        match &mut self.origin {
            Origin::Own(file) => file.saved(),
            _ => Some(Ok(())),
        }
    }

    /// Waits until the keys are saved, because the process or its threads are about to end. `false`: `most` passed
    /// before.
    pub(crate) fn wait_until_saved(&self, most: Duration) -> bool {
        match &self.origin {
            Origin::Own(file) => file.wait(most),
            _ => true,
        }
    }

    fn publish(&self, shared: &Shared) {
        Common::KeySince.set(shared, self.keys.since_s().unwrap_or(0));
        Common::KeyRotates.set(shared, self.keys.rotates_at_s().unwrap_or(0));
    }
}

/// Checks that the keys can be read or created, and saved.
pub(crate) fn examine(config: &Config, findings: &mut Findings) {
    let tickets = &config.tickets;
    let secret_place = Place::Program("ticket_secret_file");
    let secret = tickets.ticket_secret_file.as_deref();
    // A secret without keys to encrypt is not used.
    let is_used = !matches!(tickets.ticket_keys.first(), Some(KeySource::Memory) | None);
    let secret = match secret.filter(|_| is_used).map(Secret::read) {
        Some(Err(why)) => return findings.error(secret_place, why),
        Some(Ok(secret)) => Some(secret),
        None => None,
    };
    let place = Place::Program("ticket_keys");
    match tickets.ticket_keys.first() {
        Some(KeySource::File(_)) => {
            if let Err(why) = examine_files(&paths(tickets), secret, place, findings) {
                findings.errors(place, why);
            }
        }
        Some(KeySource::Store(_)) => {
            let ca = tickets.ticket_store_ca.as_deref();
            if let Some(Err(why)) = ca.map(material::authorities_of) {
                findings.error(Place::Program("ticket_store_ca"), why);
            }
        }
        Some(KeySource::Memory) | None => {}
    }
}

fn examine_files(
    paths: &[PathBuf],
    secret: Option<Secret>,
    place: Place,
    findings: &mut Findings,
) -> Result<(), Vec<String>> {
    if let ([path], Some(secret)) = (paths, secret)
        && file::read_own(path, &secret)
            .map_err(|why| vec![why])?
            .is_some()
    {
        directory_of(path, "ticket keys", place, findings);
        return Ok(());
    }
    foreign::read(paths).map(drop)
}

fn paths(tickets: &Tickets) -> Vec<PathBuf> {
    let path = |source: &KeySource| match source {
        KeySource::File(path) => Some(path.clone()),
        _ => None,
    };
    tickets.ticket_keys.iter().filter_map(path).collect()
}

fn store_settings(
    tickets: &Tickets,
    address: &StoreAddress,
    identity: Option<Pem>,
) -> Result<StoreSettings, String> {
    let secret = tickets.ticket_secret_file.as_deref();
    let ca = tickets.ticket_store_ca.as_deref();
    Ok(StoreSettings {
        address: address.clone(),
        secret: Secret::read(secret.ok_or("ticket_secret_file is missing")?)?,
        ca: ca.map(material::authorities_of).transpose()?,
        identity,
        rotation: tickets.ticket_rotation,
    })
}

fn fresh(tickets: &Tickets, now: UnixTime) -> Result<TicketKeys, Vec<String>> {
    TicketKeys::generate(now, period_s(tickets.ticket_rotation)).map_err(|e| vec![e.to_string()])
}

fn period_s(rotation: Duration) -> u32 {
    u32::try_from(rotation.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Flag, Machine, Section, load};
    use dormouse_engine::Identity;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    /// The system's bundle has more than 200 kB.
    #[test]
    fn all_authorities_of_a_store_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (chain, _) = Identity::self_signed_pem("store.example").expect("a certificate");
        let bundle = chain.repeat(300);
        assert!(bundle.len() > 128 << 10);
        fs::write(at("bundle.pem"), &bundle).expect("written");
        fs::write(at("secret"), "x".repeat(32)).expect("written");
        fs::set_permissions(at("secret"), Permissions::from_mode(0o600)).expect("changed");
        let flags = [
            ("listen", "127.0.0.1:8443".to_owned()),
            ("to", "echo:".to_owned()),
            ("self-signed", "x".to_owned()),
            ("ticket-keys", "rediss://127.0.0.1:1".to_owned()),
            ("ticket-secret-file", at("secret")),
            ("ticket-store-ca", at("bundle.pem")),
        ];
        let flags = flags.map(|(name, value)| Flag::new(name, &value));
        let loaded = load(None, Section::Route, &flags, &Machine::read());
        let config = loaded
            .unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .config;
        let [KeySource::Store(address)] = config.tickets.ticket_keys.as_slice() else {
            panic!("a store");
        };
        let settings = store_settings(&config.tickets, address, None).expect("readable files");
        assert_eq!(settings.ca, Some(bundle));
    }
}
