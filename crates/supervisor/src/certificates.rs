//! Certificates whose files change are taken into use by themselves, and so are the authorities
//! and revocation lists by which clients are judged.
//!
//! Looked at is what the path leads to (inode, length, time of change), at every look anew: so it
//! does not matter whether a file was written anew, renamed over, or a symbolic link on the way
//! was changed. What has changed is read at the first look which finds it unchanged again, since
//! certificate and key are seldom replaced in the same moment. Each pair is used once both fit
//! each other; until then the old one is, and the log says so, once.

use super::Supervisor;
use crate::material;
use dormouse_config::Config;
use dormouse_reactor::process;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What files looked like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look(Vec<(PathBuf, Option<[i64; 5]>)>);

/// What is remembered from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the files were looked at last; 0: never.
    looked_ms: u64,
    last: Look,
    /// What the files looked like when they were read.
    read: Look,
    /// What was wrong with them then.
    complaints: Vec<String>,
}

impl Watch {
    /// The files have just been read.
    pub(super) fn begin(config: &Config) -> Watch {
        let now = Look::at(config);
        Watch {
            looked_ms: process::boottime_ms(),
            last: now.clone(),
            read: now,
            complaints: Vec::new(),
        }
    }
}

impl Look {
    fn at(config: &Config) -> Look {
        let files = material::watched(config).into_iter();
        let look = |path: PathBuf| {
            let look = look_at(&path);
            (path, look)
        };
        Look(files.map(look).collect())
    }
}

fn look_at(path: &Path) -> Option<[i64; 5]> {
    let found = fs::metadata(path).ok()?;
    Some([
        found.dev() as i64,
        found.ino() as i64,
        found.len() as i64,
        found.mtime(),
        found.mtime_nsec(),
    ])
}

impl Supervisor {
    /// When the files are looked at again.
    pub(super) fn next_look_ms(&self) -> Option<u64> {
        let has_files = |route: &dormouse_config::Route| {
            !route.certificates.is_empty() || route.client_ca.is_some()
        };
        if self.stopping || self.upgrade.is_some() {
            return None;
        }
        let every = self.config.process.reload_certificates?;
        self.config
            .routes
            .iter()
            .any(has_files)
            .then(|| self.watch.looked_ms + every.as_millis() as u64)
    }

    /// Looks at the files, if it is time, and takes into use what is new.
    pub(super) fn look_at_certificates(&mut self) {
        let now_ms = process::boottime_ms();
        if self.next_look_ms().is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        let now = Look::at(&self.config);
        let is_settled = now == self.watch.last;
        let is_new = now != self.watch.read;
        self.watch.looked_ms = now_ms;
        self.watch.last = now.clone();
        if is_new && is_settled {
            self.watch.read = now;
            self.renew_certificates();
        }
    }

    fn renew_certificates(&mut self) {
        let mut renewed = material::renew(&self.config, &self.certificates);
        let clients = match material::load_clients(&self.config) {
            Ok(clients) => clients,
            Err(mut mistakes) => {
                renewed.complaints.append(&mut mistakes);
                self.client_trust.clone()
            }
        };
        for complaint in &renewed.complaints {
            if !self.watch.complaints.contains(complaint) {
                tracing::warn!("a file has changed, but the old one stays: {complaint}");
            }
        }
        self.watch.complaints = renewed.complaints;
        if clients != self.client_trust {
            let word = "authorities or revocation lists of clients";
            renewed.names.push(word.to_owned());
        }
        if renewed.names.is_empty() {
            return;
        }
        let (config, plan) = (self.config.clone(), self.plan.clone());
        match self.apply(config, plan, renewed.certificates, clients) {
            Ok(()) => tracing::info!(
                edition = self.edition,
                "certificates have changed, and are used from now on: {}",
                renewed.names.join(", ")
            ),
            Err(error) => tracing::error!("new certificates can't be used: {error}"),
        }
        process::return_heap();
    }
}
