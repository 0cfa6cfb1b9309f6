//! Watch on the files of certificates, CAs and revocation lists: changed files are reloaded automatically.
//!
//! Each poll compares what the paths lead to (inode, length, modification time), so it does not matter
//! whether a file was written in place, replaced by a rename, or a symbolic link changed. Changed files
//! are read at the first poll that finds all files stable, because certificate and key are rarely replaced
//! at the same moment; at the third poll they are read in any case, because one file may never be stable.
//! A new pair is used only if key and certificate match; until then the old pair stays in use, and one log
//! line says so.

use crate::edition::Edition;
use crate::findings::Findings;
use crate::material::{self, Material, Renewed};
use dormouse_config::{Config, Severity};
use dormouse_reactor::process;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Polls in a row that find changed files unstable until the files are read all the same.
const UNSTABLE_POLLS: u32 = 3;

/// Device, inode, length and time of change of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fingerprints(Vec<(PathBuf, Option<[i64; 5]>)>);

/// State of the watch: the files' fingerprints, and the errors of the last read.
#[derive(Debug)]
pub(crate) struct CertificateWatch {
    polled_ms: u64,
    last: Fingerprints,
    /// Fingerprints at the last read.
    read: Fingerprints,
    /// Polls in a row that have found changed files unstable.
    unstable_polls: u32,
    /// Errors of the last read.
    complaints: Vec<String>,
}

/// Material read from files that have changed.
pub(crate) struct ChangedFiles {
    pub(crate) material: Material,
    /// The files, for the log.
    pub(crate) names: Vec<String>,
}

impl CertificateWatch {
    /// Starts the watch right before the files are read.
    pub(crate) fn begin(config: &Config) -> CertificateWatch {
        let now = Fingerprints::of(config);
        CertificateWatch {
            polled_ms: process::boottime_ms(),
            last: now.clone(),
            read: now,
            unstable_polls: 0,
            complaints: Vec::new(),
        }
    }

    /// Starts the watch on files that another binary has read. They may have changed since, so the first poll reads
    /// them.
    pub(crate) fn adopt(config: &Config) -> CertificateWatch {
        CertificateWatch {
            read: Fingerprints::default(),
            ..CertificateWatch::begin(config)
        }
    }

    /// Has the next poll read the files again: what was read could not be applied.
    pub(crate) fn try_again(&mut self) {
        self.read = Fingerprints::default();
    }

    /// Time of the next poll.
    pub(crate) fn next_poll_ms(&self, config: &Config) -> Option<u64> {
        let every = config.process.reload_certificates?;
        material::has_watched(config).then(|| self.polled_ms + every.as_millis() as u64)
    }

    /// Polls the files if a poll is due, and reads changed ones. `None`: nothing new.
    pub(crate) fn poll(&mut self, edition: &Edition) -> Option<ChangedFiles> {
        let now_ms = process::boottime_ms();
        let due_ms = self.next_poll_ms(&edition.config)?;
        if due_ms > now_ms {
            return None;
        }
        let now = Fingerprints::of(&edition.config);
        let is_stable = now == self.last;
        let is_new = now != self.read;
        self.polled_ms = now_ms;
        self.last = now.clone();
        self.unstable_polls = match is_new && !is_stable {
            true => self.unstable_polls + 1,
            false => 0,
        };
        if !is_new || (1..UNSTABLE_POLLS).contains(&self.unstable_polls) {
            return None;
        }
        self.unstable_polls = 0;
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
        let mut findings = Findings::default();
        let mut of_client = current.load_of_client(&edition.config, &mut findings);
        if findings.has_errors() {
            complaints.extend(findings.words(Severity::Error));
            of_client = current.clone();
        }
        for complaint in &complaints {
            if !self.complaints.contains(complaint) {
                tracing::warn!(
                    // The remedy, in the next line, is for those who write a configuration.
                    error = complaint.lines().next(),
                    "changed file rejected; keeping the previous contents"
                );
            }
        }
        self.complaints = complaints;
        if client_trust != current.client_trust {
            names.push("client CAs or revocation lists".to_owned());
        }
        if of_client.origins != current.origins || of_client.backend_tls != current.backend_tls {
            names.push("certificates or CAs for servers".to_owned());
        }
        if names.is_empty() {
            return None;
        }
        let material = Material {
            certificates,
            client_trust,
            ..of_client
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{self, Ready};
    use crate::occasion::{Occasion, Occupied, Purpose};
    use crate::source::Source;
    use dormouse_config::Section;
    use dormouse_engine::Identity;
    use std::thread;
    use std::time::Duration;

    /// Writes a new certificate for this name, and its key beside it.
    fn write_pair(folder: &Path, name: &str) {
        let (chain, key) = Identity::self_signed_pem(name).expect("a certificate");
        fs::write(folder.join(format!("{name}.key")), key.as_bytes()).expect("written");
        fs::write(folder.join(format!("{name}.pem")), chain).expect("written");
    }

    /// A configuration with the certificates of this folder, and its watch.
    fn load(folder: &Path) -> (Edition, CertificateWatch) {
        let source = Source {
            file: Some(folder.join("dormouse.toml")),
            section: Section::Route,
            flags: Vec::new(),
        };
        let text = format!(
            "reload_certificates = '100ms'\n[[route]]\nlisten = '127.0.0.1:5001'\nto = 'echo:'\n\
             certificates = '{}'\n",
            folder.display()
        );
        fs::write(folder.join("dormouse.toml"), text).expect("written");
        let occasion = Occasion {
            purpose: Purpose::Check,
            look_up: &|_, _| Ok(Vec::new()),
            occupied: &|_| Occupied::default(),
        };
        let ready = load::load(&source, &occasion).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let Ready {
            loaded,
            material,
            watch,
        } = ready;
        (
            Edition::new(1, 0, loaded.config, loaded.plan, material),
            watch,
        )
    }

    /// What the watch has found after the files have not changed for two polls.
    fn settled(watch: &mut CertificateWatch, edition: &Edition) -> Option<ChangedFiles> {
        (0..3).find_map(|_| {
            thread::sleep(Duration::from_millis(110));
            watch.poll(edition)
        })
    }

    /// The start may wait seconds for a store or a disk after it has read the certificates.
    #[test]
    fn a_change_during_the_start_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        write_pair(folder.path(), "a.example");
        let (edition, mut watch) = load(folder.path());
        assert!(
            settled(&mut watch, &edition).is_none(),
            "nothing has changed"
        );
        let (edition, mut watch) = load(folder.path());
        write_pair(folder.path(), "a.example");
        let changed = settled(&mut watch, &edition).expect("a change");
        assert_ne!(
            changed.material.certificates[0][0].chain,
            edition.material.certificates[0][0].chain
        );
    }

    #[test]
    fn a_change_that_could_not_be_applied_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        write_pair(folder.path(), "a.example");
        let (edition, mut watch) = load(folder.path());
        write_pair(folder.path(), "a.example");
        settled(&mut watch, &edition).expect("a change");
        assert!(settled(&mut watch, &edition).is_none(), "read once");
        watch.try_again();
        settled(&mut watch, &edition).expect("the same change");
    }

    /// Some revocation lists are rewritten more often than the files are polled.
    #[test]
    fn a_file_that_never_settles_delays_no_other_file_for_long() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.example", "restless.example"] {
            write_pair(folder.path(), name);
        }
        let (edition, mut watch) = load(folder.path());
        write_pair(folder.path(), "a.example");
        let changed = (0..UNSTABLE_POLLS).find_map(|_| {
            write_pair(folder.path(), "restless.example");
            thread::sleep(Duration::from_millis(110));
            watch.poll(&edition)
        });
        // The restless file itself is read, too.
        assert_eq!(changed.expect("a change").names.len(), 2);
    }

    /// Some programs remove a key before they write the next one.
    #[test]
    fn a_certificate_stays_while_its_key_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.example", "b.example"] {
            write_pair(folder.path(), name);
        }
        let (edition, mut watch) = load(folder.path());
        fs::remove_file(folder.path().join("b.example.key")).expect("removed");
        let changed = settled(&mut watch, &edition);
        assert!(
            changed.is_none(),
            "{:?}",
            changed.map(|changed| changed.names)
        );
        assert_eq!(watch.complaints.len(), 1, "{:?}", watch.complaints);
        write_pair(folder.path(), "b.example");
        let changed = settled(&mut watch, &edition).expect("a change");
        assert_eq!(changed.names.len(), 1);
        assert!(changed.names[0].ends_with("b.example.pem"));
    }
}
