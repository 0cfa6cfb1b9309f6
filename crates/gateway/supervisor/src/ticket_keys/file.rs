//! Ticket keys in a file: readable only by the owner, and replaced as a whole.

use dormouse_engine::{SettingsError, TicketKeys};
use dormouse_helpers::fleet::{FILE_BYTES_MAX, Secret};
use dormouse_helpers::private_file::read_private;
use dormouse_reactor::file::replace_private;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval at which [`OwnFile::wait`] looks whether the keys are written.
const WAIT: Duration = Duration::from_millis(2);

/// A file in our own format. A thread writes rotated keys to it: a disk may take seconds, or hang, and systemd ends a
/// main process that reports nothing for half a minute.
pub(super) struct OwnFile {
    path: PathBuf,
    secret: Secret,
    /// The last write, until its result is taken.
    saving: Option<io::Result<JoinHandle<Result<(), String>>>>,
}

impl OwnFile {
    pub(super) fn new(path: PathBuf, secret: Secret) -> OwnFile {
        OwnFile {
            path,
            secret,
            saving: None,
        }
    }

    /// Starts to save the keys. The log has the reason if that fails.
    pub(super) fn start_saving(&mut self, keys: &TicketKeys) {
        if self.is_saving() {
            // The keys of the next rotation may find the disk in order again.
            return log(&"the disk has not taken the previous ones yet");
        }
        let sealed = keys.seal(self.secret.bytes());
        let path = self.path.clone();
        let save = move || write(&path, sealed).inspect_err(log);
        let thread = thread::Builder::new().name("ticket-keys".to_owned());
        self.saving = Some(thread.spawn(save).inspect_err(log));
    }

    /// Whether keys are being written.
    pub(super) fn is_saving(&self) -> bool {
        matches!(&self.saving, Some(Ok(thread)) if !thread.is_finished())
    }

    /// The result of the last write. `None`: the disk has not taken the keys yet.
    pub(super) fn saved(&mut self) -> Option<Result<(), String>> {
        if self.is_saving() {
            return None;
        }
        Some(match self.saving.take() {
            Some(Ok(thread)) => thread
                .join()
                .unwrap_or_else(|_| Err("the write panicked".to_owned())),
            Some(Err(error)) => Err(error.to_string()),
            None => Ok(()),
        })
    }

    /// Waits until the keys are written, because the process or its threads are about to end. `false`: `most` passed
    /// before.
    pub(super) fn wait(&self, most: Duration) -> bool {
        let begun = Instant::now();
        while self.is_saving() && begun.elapsed() < most {
            thread::sleep(WAIT);
        }
        !self.is_saving()
    }
}

fn log(error: &impl Display) {
    tracing::error!(
        %error,
        "ticket keys could not be saved; new tickets are lost at a restart"
    );
}

/// Reads keys that dormouse has written. `Ok(None)`: the file is in another program's format.
/// `Ok(Some(None))`: there is no file yet, and dormouse may create it.
pub(super) fn read_own(path: &Path, secret: &Secret) -> Result<Option<Option<TicketKeys>>, String> {
    let Some(bytes) = read_private(path, FILE_BYTES_MAX)? else {
        return Ok(Some(None));
    };
    if !TicketKeys::looks_sealed(&bytes) {
        return Ok(None);
    }
    let keys = TicketKeys::unseal(&bytes, secret.bytes()).map_err(|_| {
        let shown = path.display();
        format!(
            "{shown}: cannot decrypt these ticket keys: they were encrypted with another ticket_secret_file, or are damaged\n  restore the right secret, or remove the keys to generate new ones: rm {shown}"
        )
    })?;
    Ok(Some(Some(keys)))
}

/// Writes encrypted keys to a new file, which then replaces the old one.
fn write(path: &Path, sealed: Result<Vec<u8>, SettingsError>) -> Result<(), String> {
    let sealed = sealed.map_err(|e| e.to_string())?;
    replace_private(path, &sealed)
        .map_err(|e| format!("cannot write ticket keys to {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::UnixTime;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    fn keys() -> TicketKeys {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        TicketKeys::generate(now, 60).expect("random bytes")
    }

    #[test]
    fn keys_survive_the_process_and_stay_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tickets.keys");
        let secret = Secret::new(&[7; 32]);
        assert!(matches!(read_own(&path, &secret), Ok(Some(None))));
        let keys = keys();
        let mut own = OwnFile::new(path.clone(), Secret::new(&[7; 32]));
        for _ in 0..2 {
            own.start_saving(&keys);
            assert!(own.wait(Duration::MAX));
            assert_eq!(own.saved(), Some(Ok(())));
        }
        let mode = fs::metadata(&path).expect("an existing file").mode() & 0o777;
        assert_eq!(mode, 0o600);
        let Ok(Some(Some(read))) = read_own(&path, &secret) else {
            panic!("the keys were written");
        };
        assert_eq!(*read.export(), *keys.export());
        let Err(why) = read_own(&path, &Secret::new(&[8; 32])) else {
            panic!("another secret must not decrypt them");
        };
        assert!(why.contains("another ticket_secret_file"), "{why}");
    }

    #[test]
    fn a_secret_that_others_can_read_is_rejected_with_a_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("fleet.secret");
        let refused = || match Secret::read(&path) {
            Ok(_) => panic!("the secret was accepted"),
            Err(why) => why,
        };
        let why = refused();
        assert!(why.contains("openssl rand -hex 32"), "{why}");
        fs::write(&path, "0123456789abcdef0123456789abcdef\n").expect("written");
        for mode in [0o644, 0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
            let why = refused();
            assert!(why.contains("chmod 600"), "{why}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        let len = Secret::read(&path).map(|secret| secret.bytes().len());
        assert_eq!(len, Ok(32));
        fs::write(&path, "short\n").expect("written");
        assert!(Secret::read(&path).is_err());
    }
}
