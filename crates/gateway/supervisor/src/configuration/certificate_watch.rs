//! Watch on the files of certificates, CAs and revocation lists: changed files are reloaded automatically.
//!
//! Each poll compares what the paths lead to (inode, length, times), so it does not matter
//! whether a file was written in place, replaced by a rename, or a symbolic link changed. Changed files
//! are read at the first poll that finds all files stable, because certificate and key are rarely replaced
//! at the same moment; at the third poll they are read in any case, because one file may never be stable.
//! What cannot be used does not replace what serves ([`material::Former`]); one log line says so, and the files are read
//! again at the next poll: some reasons pass without a change of a file.

use crate::configuration::edition::Edition;
use crate::material::{self, Changes, Material};
use dormouse_config::Config;
use dormouse_reactor::process;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Polls in a row that find changed files unstable until the files are read all the same.
const UNSTABLE_POLLS: u32 = 3;

/// Device, inode, length, and times of change of contents and of permissions of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fingerprints(Vec<(PathBuf, Option<[i64; 7]>)>);

/// State of the watch: the files' fingerprints, and what the last read has kept.
#[derive(Debug)]
pub(crate) struct CertificateWatch {
    polled_ms: u64,
    last: Fingerprints,
    /// Fingerprints at the last read. `None`: the files are read again at the next poll.
    read: Option<Fingerprints>,
    /// Polls in a row that have found changed files unstable.
    unstable_polls: u32,
    /// What the log has said since the last read without such lines.
    said: Vec<String>,
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
            read: Some(now),
            unstable_polls: 0,
            said: Vec::new(),
        }
    }

    /// Starts the watch on files that another binary has read. They may have changed since, so the first poll reads
    /// them.
    pub(crate) fn adopt(config: &Config) -> CertificateWatch {
        CertificateWatch {
            read: None,
            ..CertificateWatch::begin(config)
        }
    }

    /// Has the next poll read the files again: what was read could not be applied, or some of it was kept out.
    pub(crate) fn try_again(&mut self) {
        self.read = None;
    }

    /// The names of the files that were there at the last poll.
    pub(crate) fn seen(&self) -> HashSet<String> {
        let Fingerprints(files) = &self.last;
        let found = files.iter().filter(|(_, found)| found.is_some());
        found.map(|(path, _)| path.display().to_string()).collect()
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
        let is_new = self.read.as_ref() != Some(&now);
        self.polled_ms = now_ms;
        self.unstable_polls = match is_new && !is_stable {
            true => self.unstable_polls + 1,
            false => 0,
        };
        let is_read = is_new && !(1..UNSTABLE_POLLS).contains(&self.unstable_polls);
        let read = is_read.then(|| {
            self.unstable_polls = 0;
            self.read = Some(now.clone());
            self.read_again(edition)
        });
        self.last = now;
        read.flatten()
    }

    fn read_again(&mut self, edition: &Edition) -> Option<ChangedFiles> {
        let seen = OnceCell::new();
        let was_there = |name: &str| seen.get_or_init(|| self.seen()).contains(name);
        let (material, changes) = edition.material.renew(&edition.config, &was_there);
        self.note(&changes);
        changes.log_lost();
        let Changes {
            new: mut names,
            removed,
            ..
        } = changes;
        names.extend(removed.iter().map(|name| format!("{name} (removed)")));
        if names.is_empty() {
            return None;
        }
        Some(ChangedFiles { material, names })
    }

    /// Logs what a read has not used, unless the log has that already.
    fn note(&mut self, changes: &Changes) {
        let Changes { kept, skipped, .. } = changes;
        // The remedy, in the next line, is for those who write a configuration.
        let error = |text: &str| text.lines().next().map(str::to_owned);
        let is_new = |text: &&String| !self.said.contains(text);
        for text in kept.iter().filter(is_new) {
            tracing::warn!(
                error = error(text),
                "changed file rejected; keeping the previous contents"
            );
        }
        for text in skipped.iter().filter(is_new) {
            tracing::warn!(error = error(text), "invalid certificate skipped");
        }
        if !kept.is_empty() {
            self.try_again();
        }
        self.said = [&kept[..], skipped].concat();
    }

    /// Notes what a reload has read: the files as they were when it began, with `self` begun then.
    pub(crate) fn reloaded(mut self, changes: &Changes) -> CertificateWatch {
        if !changes.kept.is_empty() {
            self.try_again();
        }
        // The reload has logged its findings.
        self.said = [&changes.kept[..], &changes.skipped].concat();
        self
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

fn fingerprint(path: &Path) -> Option<[i64; 7]> {
    let found = fs::metadata(path).ok()?;
    Some([
        found.dev() as i64,
        found.ino() as i64,
        found.len() as i64,
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::load::{self, Ready};
    use crate::configuration::occasion::{Occasion, Occupied, Purpose};
    use crate::configuration::source::Source;
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
        load_from(folder, folder)
    }

    fn load_from(folder: &Path, certificates: &Path) -> (Edition, CertificateWatch) {
        let source = Source {
            file: Some(folder.join("dormouse.toml")),
            section: Section::Route,
            flags: Vec::new(),
        };
        let text = format!(
            "reload_certificates = '100ms'\n[[route]]\nlisten = '127.0.0.1:5001'\nto = 'echo:'\n\
             certificates = '{}'\n",
            certificates.display()
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
            ..
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
        assert_eq!(watch.said.len(), 1, "{:?}", watch.said);
        write_pair(folder.path(), "b.example");
        let changed = settled(&mut watch, &edition).expect("a change");
        assert_eq!(changed.names.len(), 1);
        assert!(changed.names[0].ends_with("b.example.pem"));
    }

    /// The directory's file system is not mounted for a while: first it is not there, then it is empty.
    #[test]
    fn a_directory_that_is_away_for_several_polls_loses_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificates, away) = (folder.path().join("live"), folder.path().join("away"));
        fs::create_dir(&certificates).expect("a directory");
        for name in ["a.example", "b.example"] {
            write_pair(&certificates, name);
        }
        let (edition, mut watch) = load_from(folder.path(), &certificates);
        fs::rename(&certificates, &away).expect("renamed");
        let polls = |watch: &mut CertificateWatch| {
            for _ in 0..4 {
                let changed = settled(watch, &edition);
                let names = changed.map(|changed| changed.names);
                assert_eq!(names, None);
            }
        };
        polls(&mut watch);
        fs::create_dir(&certificates).expect("a directory");
        polls(&mut watch);
        fs::remove_dir(&certificates).expect("removed");
        // Nor is a file there a removal of all.
        fs::write(&certificates, "not a directory").expect("written");
        polls(&mut watch);
        fs::remove_file(&certificates).expect("removed");
        write_pair(&away, "a.example");
        fs::rename(&away, &certificates).expect("renamed");
        let changed = settled(&mut watch, &edition).expect("a change");
        assert_eq!(changed.names.len(), 1, "{:?}", changed.names);
        assert_eq!(changed.material.certificates[0].len(), 2);
    }

    /// The first poll finds the files missing, the second one removes the certificate.
    #[test]
    fn a_pair_without_files_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.example", "b.example"] {
            write_pair(folder.path(), name);
        }
        let (edition, mut watch) = load(folder.path());
        for file in ["b.example.key", "b.example.pem"] {
            fs::remove_file(folder.path().join(file)).expect("removed");
        }
        let changed = settled(&mut watch, &edition).expect("a change");
        assert_eq!(changed.material.certificates[0].len(), 1);
        assert!(changed.names[0].ends_with("b.example.pem (removed)"));
    }

    /// A reason that passes without a change of the file.
    #[test]
    fn what_was_kept_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        write_pair(folder.path(), "a.example");
        let (edition, mut watch) = load(folder.path());
        let key = folder.path().join("a.example.key");
        let text = fs::read(&key).expect("a key");
        fs::write(&key, "half of a ke").expect("written");
        assert!(settled(&mut watch, &edition).is_none());
        assert_eq!(watch.read, None, "the next poll reads the files");
        fs::write(&key, text).expect("written");
        assert!(settled(&mut watch, &edition).is_none());
        assert!(watch.read.is_some() && watch.said.is_empty());
    }
}
