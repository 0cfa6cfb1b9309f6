//! Sessions of originations between restarts: main creates the mapping, fills it from the files, and
//! writes the files again after changes, because workers cannot open files.
//!
//! A file is JSON, readable only by its owner, because a session's secrets let others resume it. It is
//! replaced as a whole: written under another name, then renamed.

use crate::error::ServeError;
use dormouse_config::Config;
use dormouse_handover::OriginPem;
use dormouse_helpers::private_file::{OwnFile, read_own};
use dormouse_reactor::Fd;
use dormouse_reactor::file::replace_private_soon;
use dormouse_routes::origin;
use dormouse_tables::client_sessions::{
    ClientSessions, DATA_MAX, MAIN, SLOTS, SessionPlace, Snapshot,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zeroize::{Zeroize as _, Zeroizing};

/// Interval at which changes are saved. A power failure loses the changes since the last save: new sessions are
/// gone, and a session that was used may be offered again.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of a file. The longest sessions in all places need less, so a file that main has written can be read.
const FILE_BYTES_MAX: u64 = 48 << 20;
const _: () = assert!(FILE_BYTES_MAX as usize > origin::PLACES * SERVER_BYTES_MAX);
/// Maximum length of the names of fields in the file, and of short values: those of a server, and those of a session.
const SERVER_FIELDS_MAX: usize = 256;
const SESSION_FIELDS_MAX: usize = 64;
/// Maximum length of a server's sessions in the file; a secret takes two hexadecimal digits for each byte.
const SERVER_BYTES_MAX: usize = SERVER_FIELDS_MAX + SLOTS * (2 * DATA_MAX + SESSION_FIELDS_MAX);
const FORMAT: &str = "dormouse sessions 1";
/// The beginning of session files of every format, by which a damaged one is recognised.
const BEGINNING: &[u8] = br#"{"format":"dormouse sessions "#;
const DAMAGED: &str = "damaged, or written by another version; its sessions are not used";

/// The mapping, and its files.
pub(crate) struct SessionFiles {
    sessions: ClientSessions,
    files: Vec<SessionFile>,
    saved: Instant,
}

/// A file, and the places of its sessions in the mapping.
pub(crate) struct SessionFile {
    path: PathBuf,
    places: Vec<([u8; 16], SessionPlace)>,
    /// Sum of the places' stamps at the last write.
    written: u64,
    /// Whether that write failed.
    is_missed: bool,
}

/// The state for the next binary in this process.
#[derive(Serialize, Deserialize)]
pub(crate) struct SessionFilesState {
    fd: i32,
    files: Vec<FileState>,
}

#[derive(Serialize, Deserialize)]
struct FileState {
    path: PathBuf,
    keys: Vec<[u8; 16]>,
    written: u64,
}

#[derive(Serialize, Deserialize)]
struct FileContents {
    format: String,
    servers: Vec<ServerSessions>,
}

impl FileContents {
    /// Maximum length of the file.
    fn len_max(&self) -> usize {
        let sessions = self.servers.iter().flat_map(|server| &server.sessions);
        let secrets = sessions.map(|stored| stored.secret.len() + SESSION_FIELDS_MAX);
        // The format takes less than a server's fields.
        (1 + self.servers.len()) * SERVER_FIELDS_MAX + secrets.sum::<usize>()
    }
}

#[derive(Serialize, Deserialize)]
struct ServerSessions {
    key: String,
    since_s: u64,
    uses: u32,
    sessions: Vec<StoredSession>,
}

#[derive(Serialize, Deserialize)]
struct StoredSession {
    offered: bool,
    secret: String,
}

impl Drop for StoredSession {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl SessionFiles {
    /// Creates the mapping, if there are originations, and reads the files.
    pub(crate) fn open(
        config: &Config,
        origins: &[OriginPem],
    ) -> Result<Option<SessionFiles>, ServeError> {
        if config.originate.is_empty() {
            return Ok(None);
        }
        let sessions =
            ClientSessions::create(origin::PLACES).map_err(|error| ServeError::System {
                what: "create shared memory for sessions".to_owned(),
                error,
                hint: "",
            })?;
        let mut files = SessionFiles {
            sessions,
            files: Vec::new(),
            saved: Instant::now(),
        };
        let prepared = files.prepare(config, origins);
        files.follow(prepared.map_err(ServeError::Certificates)?);
        Ok(Some(files))
    }

    /// The files of a configuration. Those that are new in it are read.
    pub(crate) fn prepare(
        &self,
        config: &Config,
        origins: &[OriginPem],
    ) -> Result<Vec<SessionFile>, Vec<String>> {
        let mut files = Vec::new();
        let mut mistakes = Vec::new();
        for (originate, pem) in config.originate.iter().zip(origins) {
            let Some(path) = &originate.session_file else {
                continue;
            };
            let places = originate.to.iter().filter_map(|server| {
                let key = origin::key(originate, server, pem);
                Some((key, self.sessions.place(key, origin::reuse(originate))?))
            });
            let mut file = SessionFile {
                path: path.clone(),
                places: places.collect(),
                written: 0,
                is_missed: false,
            };
            // A known file is older than the memory.
            if self.files.iter().all(|known| known.path != *path) {
                let is_memory_newer = file.stamps() != 0;
                match file.read() {
                    Ok(()) if is_memory_newer => {}
                    Ok(()) => file.written = file.stamps(),
                    Err(mistake) => mistakes.push(mistake),
                }
            }
            files.push(file);
        }
        match mistakes.is_empty() {
            true => Ok(files),
            false => Err(mistakes),
        }
    }

    /// Takes over the files that [`SessionFiles::prepare`] has returned.
    pub(crate) fn follow(&mut self, files: Vec<SessionFile>) {
        self.files = files;
    }

    /// The state for the next binary in this process.
    pub(crate) fn state(&self) -> SessionFilesState {
        let files = self.files.iter().map(|file| FileState {
            path: file.path.clone(),
            keys: file.places.iter().map(|(key, _)| *key).collect(),
            written: file.due_from(),
        });
        SessionFilesState {
            fd: self.fd().0,
            files: files.collect(),
        }
    }

    /// Adopts the state that another binary in this process has left.
    pub(crate) fn adopt(config: &Config, state: &SessionFilesState) -> io::Result<SessionFiles> {
        let sessions = ClientSessions::adopt(Fd(state.fd), origin::PLACES, u32::from(MAIN))?;
        let files = state.files.iter().map(|file| {
            let mut originations = config.originate.iter();
            let of_file = originations.find(|one| one.session_file.as_ref() == Some(&file.path));
            let places = file.keys.iter().filter_map(|&key| {
                let place = sessions.place(key, origin::reuse(of_file?))?;
                Some((key, place))
            });
            SessionFile {
                path: file.path.clone(),
                places: places.collect(),
                written: file.written,
                is_missed: false,
            }
        });
        Ok(SessionFiles {
            files: files.collect(),
            sessions: sessions.clone(),
            saved: Instant::now(),
        })
    }

    pub(crate) fn fd(&self) -> Fd {
        self.sessions.fd()
    }

    /// Milliseconds until the next save; `None`: there are no files.
    pub(crate) fn until_save_ms(&self) -> Option<u64> {
        let left = SAVE_INTERVAL.saturating_sub(self.saved.elapsed());
        (!self.files.is_empty()).then_some(left.as_millis() as u64 + 1)
    }

    pub(crate) fn save_if_due(&mut self) {
        if self.saved.elapsed() >= SAVE_INTERVAL {
            self.save();
        }
    }

    /// Writes the files whose sessions have changed.
    pub(crate) fn save(&mut self) {
        self.saved = Instant::now();
        for file in &mut self.files {
            let stamps = file.stamps();
            if stamps == file.written {
                continue;
            }
            // Set before the write: after a failure, the next change tries again.
            file.written = stamps;
            let written = file.write();
            file.is_missed = written.is_err();
            if let Err(error) = written {
                tracing::error!(file = %file.path.display(), %error, "session file could not be written");
            }
        }
    }

    /// As [`SessionFiles::save`], at the end: also writes the files whose last write failed.
    pub(crate) fn save_last(&mut self) {
        for file in &mut self.files {
            file.written = file.due_from();
        }
        self.save();
    }
}

impl SessionFile {
    fn stamps(&self) -> u64 {
        self.places.iter().fold(0, |sum, (_, place)| {
            sum.wrapping_add(place.stamp().load(Ordering::Relaxed))
        })
    }

    /// The stamps from which the file must be written again: other ones than now, if the last write failed.
    fn due_from(&self) -> u64 {
        match self.is_missed {
            true => self.stamps().wrapping_sub(1),
            false => self.written,
        }
    }

    fn read(&self) -> Result<(), String> {
        let Contents::Sessions(contents) = contents_of(&self.path)? else {
            return Ok(());
        };
        for server in contents.servers {
            let place = self.places.iter().find(|(key, _)| hex(key) == server.key);
            if let Some((_, place)) = place {
                place.restore(&server.snapshot());
            }
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let servers = self.places.iter().filter_map(|(key, place)| {
            let snapshot = place.snapshot()?;
            Some(ServerSessions::new(hex(key), &snapshot))
        });
        let content = FileContents {
            format: FORMAT.to_owned(),
            servers: servers.collect(),
        };
        // A buffer that grows leaves copies of secrets behind.
        let len_max = content.len_max();
        let mut text = Zeroizing::new(Vec::with_capacity(len_max));
        serde_json::to_writer(&mut *text, &content)?;
        debug_assert!(text.len() <= len_max, "the buffer has grown");
        // A damaged file after a power failure costs full handshakes; to wait for the disk would hold up main.
        replace_private_soon(&self.path, &text)
    }
}

impl ServerSessions {
    fn new(key: String, snapshot: &Snapshot) -> ServerSessions {
        let stored = |(offered, bytes): &(bool, Zeroizing<Vec<u8>>)| StoredSession {
            offered: *offered,
            secret: hex(bytes),
        };
        ServerSessions {
            key,
            since_s: snapshot.since_s,
            uses: snapshot.uses,
            sessions: snapshot.sessions.iter().map(stored).collect(),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let sessions = self.sessions.iter().filter_map(|stored| {
            let bytes = unhex(&stored.secret)?;
            Some((stored.offered, Zeroizing::new(bytes)))
        });
        Snapshot {
            since_s: self.since_s,
            uses: self.uses,
            sessions: sessions.collect(),
        }
    }
}

/// Checks that sessions can be read from the file, if it exists. Returns a warning if there are none in it.
pub(crate) fn examine(path: &Path) -> Result<Option<String>, String> {
    contents_of(path).map(|contents| match contents {
        Contents::Sessions(_) | Contents::Nothing => None,
        Contents::Unusable(why) => Some(format!("{}: {why}", path.display())),
    })
}

/// What is in a session file.
enum Contents {
    Sessions(FileContents),
    /// The file does not exist yet, or was created empty.
    Nothing,
    /// Its sessions are not used, and the next save replaces them; the reason.
    Unusable(String),
}

fn contents_of(path: &Path) -> Result<Contents, String> {
    let bytes = match read_own(path, FILE_BYTES_MAX)? {
        OwnFile::Contents(bytes) if !bytes.is_empty() => bytes,
        OwnFile::Contents(_) | OwnFile::Missing => return Ok(Contents::Nothing),
        OwnFile::OfAnother(uid) => {
            let why = format!("belongs to user {uid}; its sessions are not used");
            return Ok(Contents::Unusable(why));
        }
    };
    match serde_json::from_slice::<FileContents>(&bytes) {
        Ok(contents) if contents.format == FORMAT => Ok(Contents::Sessions(contents)),
        _ if bytes.starts_with(BEGINNING) => Ok(Contents::Unusable(DAMAGED.to_owned())),
        _ => Err(format!(
            "{}: not a session file\nset another path, or remove the file",
            path.display()
        )),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::process;

    /// An empty file, as `install -m 600 /dev/null FILE` makes it, has no sessions. Any other file might be needed.
    #[test]
    fn an_empty_file_is_a_session_file_and_a_foreign_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions");
        replace_private_soon(&path, b"").expect("written");
        assert_eq!(examine(&path), Ok(None));
        let other_format = br#"{"format":"another","servers":[]}"#;
        for foreign in [&b"no sessions"[..], b"\xff\xfe", b"{}", other_format] {
            replace_private_soon(&path, foreign).expect("written");
            let refused = examine(&path).expect_err("not a session file");
            assert!(
                refused.contains("\nset another path, or remove the file"),
                "{refused}"
            );
        }
    }

    /// A damaged session file does not prevent a start, because clients get new sessions.
    #[test]
    fn a_damaged_or_foreign_session_file_is_reported_and_not_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions");
        let whole = format!(r#"{{"format":"{FORMAT}","servers":[]}}"#);
        replace_private_soon(&path, whole.as_bytes()).expect("written");
        assert_eq!(examine(&path), Ok(None));
        let newer = whole.replace(FORMAT, "dormouse sessions 2");
        for damaged in [&whole[..whole.len() - 1], &newer] {
            replace_private_soon(&path, damaged.as_bytes()).expect("written");
            assert!(contents_of(&path).is_ok_and(|found| matches!(found, Contents::Unusable(_))));
            let warning = examine(&path).expect("a warning").unwrap_or_default();
            assert!(warning.ends_with(DAMAGED), "{warning}");
        }
        if process::user_id() == 0 {
            replace_private_soon(&path, whole.as_bytes()).expect("written");
            std::os::unix::fs::chown(&path, Some(1), None).expect("another user's");
            let warning = examine(&path).expect("a warning").unwrap_or_default();
            assert!(warning.contains("belongs to user 1;"), "{warning}");
        }
    }

    /// A compromised worker can fill every place. The file that results must not stop the next start.
    #[test]
    fn the_longest_sessions_fit_into_a_file() {
        let longest = Snapshot {
            since_s: u64::MAX,
            uses: u32::MAX,
            sessions: vec![(false, Zeroizing::new(vec![0xff; DATA_MAX])); SLOTS],
        };
        let server = ServerSessions::new(hex(&[0xff; 16]), &longest);
        let text = serde_json::to_vec(&server).expect("JSON");
        assert!(text.len() < SERVER_BYTES_MAX, "{}", text.len());
    }

    /// A full disk has room again before the program ends.
    #[test]
    fn a_file_whose_write_failed_is_written_at_the_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("folder");
        let sessions = ClientSessions::create(1).expect("memory");
        let key = [7; 16];
        let reuse = dormouse_engine::Reuse {
            uses_max: 1,
            age_max_s: 1,
        };
        let place = sessions.place(key, reuse).expect("a place");
        place.stamp().store(1, Ordering::Relaxed);
        let file = SessionFile {
            path: folder.join("sessions"),
            places: vec![(key, place)],
            written: 0,
            is_missed: false,
        };
        let mut files = SessionFiles {
            sessions,
            files: vec![file],
            saved: Instant::now(),
        };
        files.save();
        std::fs::create_dir(&folder).expect("a folder");
        files.save();
        assert!(!folder.join("sessions").exists(), "nothing has changed");
        files.save_last();
        assert!(folder.join("sessions").exists());
    }

    #[test]
    fn hex_round_trips() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        for wrong in ["0", "zz", "0é"] {
            assert_eq!(unhex(wrong), None);
        }
    }
}
