//! The keys of the tickets, in main: where they come from, when they change, who is told.
//!
//! ```text
//!   memory   made here, rotated here
//!   file     ours: rotated here, written there, sealed with a secret
//!            theirs (nginx, HAProxy): read, never changed
//!   store    rotated by whichever machine of the fleet comes first: see `fleet`
//! ```

mod file;
mod foreign;

use crate::examine::directories::directory_of;
use crate::findings::Findings;
use crate::material;
use dormouse_config::{Config, KeySource, Place, StoreAddress, Tickets};
use dormouse_engine::{TicketKeys, UnixTime};
use dormouse_helpers::fleet::{Secret, StoreLink, StoreSettings};
use dormouse_reactor::Fd;
use dormouse_reactor::process::{Ended, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_tables::counters::Common;
use std::path::PathBuf;
use std::time::Duration;

/// The keys, and where they come from.
pub(crate) struct Keyring {
    keys: TicketKeys,
    origin: Origin,
}

enum Origin {
    Memory,
    /// A file of ours, which main writes.
    Ours {
        path: PathBuf,
        secret: Secret,
    },
    /// Files of others.
    Theirs(Vec<PathBuf>),
    Store(Box<StoreLink>),
}

impl Keyring {
    /// Reads or makes the keys. A store is asked, but not waited for longer than a moment.
    pub(crate) fn open(
        config: &Config,
        now: UnixTime,
        shared: &Shared,
    ) -> Result<Keyring, Vec<String>> {
        let tickets = &config.tickets;
        let ring = match tickets.ticket_keys.first() {
            Some(KeySource::File(_)) => {
                let secret = match &tickets.ticket_secret_file {
                    Some(path) => Some(Secret::read(path).map_err(|why| vec![why])?),
                    None => None,
                };
                Keyring::from_files(&paths(tickets), secret, tickets, now)?
            }
            Some(KeySource::Store(address)) => {
                let fresh = fresh(tickets, now)?;
                let mut link = Keyring::link(config, address, &fresh).map_err(|why| vec![why])?;
                // A moment's patience: who restarts has the fleet's keys before it serves.
                let keys = link.first(shared).unwrap_or(fresh);
                let origin = Origin::Store(Box::new(link));
                Keyring { keys, origin }
            }
            Some(KeySource::Memory) | None => Keyring {
                keys: fresh(tickets, now)?,
                origin: Origin::Memory,
            },
        };
        ring.publish(shared);
        Ok(ring)
    }

    fn from_files(
        paths: &[PathBuf],
        secret: Option<Secret>,
        tickets: &Tickets,
        now: UnixTime,
    ) -> Result<Keyring, Vec<String>> {
        if let ([path], Some(secret)) = (paths, secret)
            && let Some(found) = file::ours(path, &secret).map_err(|why| vec![why])?
        {
            let mut keys = match found {
                Some(keys) => keys,
                None => fresh(tickets, now)?,
            };
            keys.set_period(now, tickets.ticket_rotation);
            keys.rotate_if_due(now).map_err(|e| vec![e.to_string()])?;
            let path = path.clone();
            file::write(&path, &keys, &secret).map_err(|why| vec![why])?;
            return Ok(Keyring {
                keys,
                origin: Origin::Ours { path, secret },
            });
        }
        Ok(Keyring {
            keys: foreign::read(paths)?,
            origin: Origin::Theirs(paths.to_vec()),
        })
    }

    /// After an upgrade: the keys that workers have, and where they came from.
    pub(crate) fn adopt(config: &Config, keys: TicketKeys) -> Keyring {
        let tickets = &config.tickets;
        let origin = match tickets.ticket_keys.first() {
            Some(KeySource::File(path)) => match &tickets.ticket_secret_file {
                Some(secret) if keys.rotates_at_s().is_some() => {
                    Secret::read(secret).map(|secret| Origin::Ours {
                        path: path.clone(),
                        secret,
                    })
                }
                _ => Ok(Origin::Theirs(paths(tickets))),
            },
            Some(KeySource::Store(address)) => {
                Keyring::link(config, address, &keys).map(|link| Origin::Store(Box::new(link)))
            }
            Some(KeySource::Memory) | None => Ok(Origin::Memory),
        };
        let origin = origin.unwrap_or_else(|why| {
            tracing::error!("{why}; ticket keys are this process's own from now on");
            Origin::Memory
        });
        Keyring { keys, origin }
    }

    fn link(
        config: &Config,
        address: &StoreAddress,
        keys: &TicketKeys,
    ) -> Result<StoreLink, String> {
        let settings = store_settings(&config.tickets, address)?;
        StoreLink::start(settings, keys, config)
            .map_err(|why| format!("ticket_keys = \"{address}\": {why}"))
    }

    /// The keys as they are now.
    pub(crate) fn keys(&self) -> &TicketKeys {
        &self.keys
    }

    fn store(&mut self) -> Option<&mut StoreLink> {
        match &mut self.origin {
            Origin::Store(link) => Some(link),
            _ => None,
        }
    }

    /// What becomes readable when a store has news, if nobody waits for it yet.
    pub(crate) fn new_bell(&mut self) -> Option<Fd> {
        self.store()?.new_bell()
    }

    /// Was it the process that talks to the store?
    pub(crate) fn ended(&mut self, pid: Pid, ended: Ended, shared: &Shared) -> bool {
        self.store()
            .is_some_and(|link| link.ended(pid, ended, shared))
    }

    /// Ends that process, which is then to be waited for.
    pub(crate) fn end_process(&mut self) -> Option<Pid> {
        self.store()?.end()
    }

    /// How long until the keys are to be looked at again; `None`: never.
    pub(crate) fn until_due_ms(&self, now: UnixTime) -> Option<u64> {
        let (due_s, start_ms) = match &self.origin {
            // The process which talks to the store rotates; this is only for when it can't.
            Origin::Store(link) => (self.alone_from_s(), link.until_start_ms()),
            _ => (self.keys.rotates_at_s(), None),
        };
        let until_ms = |due_s: u64| due_s.saturating_sub(now.as_secs()).saturating_mul(1000);
        due_s.map(until_ms).into_iter().chain(start_ms).min()
    }

    /// When a store has been out of reach for so long that this machine goes its own way: the
    /// fleet has sealed with *next* for a whole period, and no key may live for ever.
    fn alone_from_s(&self) -> Option<u64> {
        let period_s = self.keys.period_s()?;
        Some(self.keys.rotates_at_s()?.saturating_add(period_s.into()))
    }

    /// Takes the store's news, and rotates when it is time. `true`: there are new keys.
    pub(crate) fn update(&mut self, now: UnixTime, shared: &Shared) -> bool {
        let mut changed = false;
        if let Origin::Store(link) = &mut self.origin {
            if let Some(news) = link.news(shared) {
                self.keys = news;
                changed = true;
            }
            link.start_if_due(&self.keys);
        }
        let is_due = match &self.origin {
            Origin::Store(_) => self.alone_from_s(),
            _ => self.keys.rotates_at_s(),
        };
        if is_due.is_some_and(|due_s| due_s <= now.as_secs()) {
            changed |= self.rotate(now);
        }
        if changed {
            self.publish(shared);
        }
        changed
    }

    /// The configuration was read again: so are key files of others, and keys of ours rotate as
    /// often as it says now.
    pub(crate) fn follow(&mut self, config: &Config, now: UnixTime) -> Result<(), Vec<String>> {
        match &self.origin {
            Origin::Theirs(paths) => self.keys = foreign::read(paths)?,
            Origin::Memory | Origin::Ours { .. } => {
                self.keys.set_period(now, config.tickets.ticket_rotation);
            }
            Origin::Store(_) => {}
        }
        Ok(())
    }

    /// Rotates now, because an administrator has ordered it. An error: who makes the keys.
    pub(crate) fn rotate_now(&mut self, now: UnixTime, shared: &Shared) -> Result<(), String> {
        match &self.origin {
            Origin::Memory | Origin::Ours { .. } => {}
            Origin::Theirs(_) => {
                return Err("ticket keys come from a file that another program writes: \
                            let it write new ones, then `dormouse reload`"
                    .to_owned());
            }
            Origin::Store(_) => {
                return Err(
                    "ticket keys come from the store of the fleet, which rotates them \
                            for all machines (ticket_rotation)"
                        .to_owned(),
                );
            }
        }
        let rotated = self.keys.rotate_now(now);
        rotated.map_err(|error| format!("ticket keys could not be rotated: {error}"))?;
        self.keep_rotated();
        self.publish(shared);
        Ok(())
    }

    fn rotate(&mut self, now: UnixTime) -> bool {
        match self.keys.rotate_if_due(now) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(error) => {
                tracing::error!(%error, "ticket keys could not be rotated");
                return false;
            }
        }
        self.keep_rotated();
        true
    }

    /// New keys are kept where keys of ours lie.
    fn keep_rotated(&self) {
        match &self.origin {
            Origin::Ours { path, secret } => {
                if let Err(why) = file::write(path, &self.keys, secret) {
                    tracing::error!("{why}; tickets made from now on end with this process");
                }
            }
            Origin::Store(_) => tracing::warn!(
                "the store of the ticket keys has been out of reach for a whole rotation; \
                 this machine makes its own until it is back"
            ),
            Origin::Memory | Origin::Theirs(_) => {}
        }
    }

    fn publish(&self, shared: &Shared) {
        Common::KeySince.set(shared, self.keys.since_s().unwrap_or(0));
        Common::KeyRotates.set(shared, self.keys.rotates_at_s().unwrap_or(0));
    }
}

/// Reads what the keys would be made of, and tries whether they could be kept.
pub(crate) fn examine(config: &Config, findings: &mut Findings) {
    let tickets = &config.tickets;
    let secret_place = Place::Program("ticket_secret_file");
    let secret = tickets.ticket_secret_file.as_deref();
    // Without keys that it would seal nobody reads it.
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
        && file::ours(path, &secret)
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

fn store_settings(tickets: &Tickets, address: &StoreAddress) -> Result<StoreSettings, String> {
    let secret = tickets.ticket_secret_file.as_deref();
    let ca = tickets.ticket_store_ca.as_deref();
    Ok(StoreSettings {
        address: address.clone(),
        secret: Secret::read(secret.ok_or("ticket_secret_file is missing")?)?,
        ca: ca.map(file::read_text).transpose()?,
    })
}

fn fresh(tickets: &Tickets, now: UnixTime) -> Result<TicketKeys, Vec<String>> {
    TicketKeys::generate(now, period_s(tickets.ticket_rotation)).map_err(|e| vec![e.to_string()])
}

fn period_s(rotation: Duration) -> u32 {
    u32::try_from(rotation.as_secs()).unwrap_or(u32::MAX)
}
