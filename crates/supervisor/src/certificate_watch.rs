//! Watch on the files of certificates, of authorities and of revocation lists: new ones are taken into
//! use by themselves.
//!
//! Each look compares what the path leads to (inode, length, time of change), so it does not matter
//! whether a file was written in place, renamed over, or a symbolic link on the way was changed.
//! Files that have changed are read at the first look that finds them unchanged again, since
//! certificate and key are seldom replaced in the same moment. A pair is used once both fit each
//! other; until then the old pair is, and the log says so, once.

use crate::edition::Edition;
use crate::findings::Findings;
use crate::material::{self, Material, Renewed};
use dormouse_config::{Config, Route, Severity};
use dormouse_reactor::process;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Device, inode, length and time of change of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fingerprints(Vec<(PathBuf, Option<[i64; 5]>)>);

/// The watch: what the files looked like, and what was wrong with them.
#[derive(Debug)]
pub(crate) struct CertificateWatch {
    looked_ms: u64,
    last: Fingerprints,
    /// When the files were read.
    read: Fingerprints,
    /// What was wrong with them then.
    complaints: Vec<String>,
}

/// Material read from files that have changed.
pub(crate) struct ChangedFiles {
    pub(crate) material: Material,
    /// The files, for the log.
    pub(crate) names: Vec<String>,
}

impl CertificateWatch {
    /// The files have just been read.
    pub(crate) fn begin(config: &Config) -> CertificateWatch {
        let now = Fingerprints::of(config);
        CertificateWatch {
            looked_ms: process::boottime_ms(),
            last: now.clone(),
            read: now,
            complaints: Vec::new(),
        }
    }

    /// When the files are looked at again.
    pub(crate) fn next_look_ms(&self, config: &Config) -> Option<u64> {
        let has_files = |route: &Route| !route.certificates.is_empty() || route.client_ca.is_some();
        let every = config.process.reload_certificates?;
        config
            .routes
            .iter()
            .any(has_files)
            .then(|| self.looked_ms + every.as_millis() as u64)
    }

    /// Looks at the files, if it is time, and reads those that have changed. `None`: nothing new.
    pub(crate) fn look(&mut self, edition: &Edition) -> Option<ChangedFiles> {
        let now_ms = process::boottime_ms();
        let due_ms = self.next_look_ms(&edition.config)?;
        if due_ms > now_ms {
            return None;
        }
        let now = Fingerprints::of(&edition.config);
        let is_settled = now == self.last;
        let is_new = now != self.read;
        self.looked_ms = now_ms;
        self.last = now.clone();
        if !is_new || !is_settled {
            return None;
        }
        self.read = now;
        self.read_again(edition)
    }

    fn read_again(&mut self, edition: &Edition) -> Option<ChangedFiles> {
        let current = &edition.material;
        let Renewed {
            certificates,
            mut names,
            mut complaints,
        } = material::renew(&edition.config, &current.certificates);
        let mut findings = Findings::default();
        let mut client_trust = material::load_client_trust(&edition.config, &mut findings);
        if findings.has_errors() {
            complaints.extend(findings.words(Severity::Error));
            client_trust.clone_from(&current.client_trust);
        }
        for complaint in &complaints {
            if !self.complaints.contains(complaint) {
                tracing::warn!("a file has changed, but the old one stays: {complaint}");
            }
        }
        self.complaints = complaints;
        if client_trust != current.client_trust {
            names.push("authorities or revocation lists of clients".to_owned());
        }
        if names.is_empty() {
            return None;
        }
        let material = Material {
            certificates,
            client_trust,
            ..current.clone()
        };
        Some(ChangedFiles { material, names })
    }
}

impl Fingerprints {
    fn of(config: &Config) -> Fingerprints {
        let files = material::watched(config).into_iter();
        let look = |path: PathBuf| {
            let fingerprint = fingerprint(&path);
            (path, fingerprint)
        };
        Fingerprints(files.map(look).collect())
    }
}

fn fingerprint(path: &Path) -> Option<[i64; 5]> {
    let found = fs::metadata(path).ok()?;
    Some([
        found.dev() as i64,
        found.ino() as i64,
        found.len() as i64,
        found.mtime(),
        found.mtime_nsec(),
    ])
}
