//! The work of a scout, passed in a memory file.

use dormouse_config::{SpiffeRule, StatusCodes};
use dormouse_handover::lists::{Texts, set_texts};
use dormouse_handover::{OriginPem, Pem, parts};
use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;

/// A scout's work.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Names to look up: hosts with ports.
    pub names: Vec<String>,
    /// `None`: each name is looked up once, then the scout exits.
    pub schedule: Option<LookupSchedule>,
    /// Backends to check, in the order of their addresses.
    pub checks: Vec<Check>,
    /// TLS settings of the checks.
    pub profiles: Vec<TlsProfile>,
}

/// Intervals between the lookups of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupSchedule {
    /// Interval for a name whose addresses have no known lifetime.
    pub every_ms: u64,
    /// Lower bound of the lifetime that DNS gives.
    pub ttl_min_ms: u64,
    /// Upper bound of the lifetime that DNS gives.
    pub ttl_max_ms: u64,
}

/// TLS settings for the checks of a route's backends.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct TlsProfile {
    /// Trusted roots and client certificate, the same as for clients' connections.
    pub pem: OriginPem,
    /// ALPN protocols that the check offers.
    pub alpn: Vec<String>,
    /// The SPIFFE ids that stand for a name, if the roots are those of a trust domain.
    #[serde(default)]
    pub ids: Option<Vec<SpiffeRule>>,
}

/// TLS of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckTls {
    /// Index among the task's profiles.
    pub profile: usize,
    /// Name that the backend's certificate must match.
    pub server_name: String,
}

impl Task {
    /// Whether the task has no names and no checks.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.checks.is_empty()
    }

    /// Whether a scout with the task `other` only needs another list of checks. Its sandbox depends on
    /// whether any check connects to a unix socket.
    pub fn differs_only_in_checks(&self, other: &Task) -> bool {
        let is_unix = |check: &Check| check.backend.starts_with("unix:");
        let asks = |task: &Task| (!task.checks.is_empty(), task.checks.iter().any(is_unix));
        asks(self) == asks(other)
            && self.names == other.names
            && self.schedule == other.schedule
            && self.profiles == other.profiles
    }
}

/// How one backend is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The backend's address, as in the table of backends.
    pub backend: String,
    /// The local address to connect from. `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// Bytes sent first: a PROXY protocol header without client address.
    pub preface: Vec<u8>,
    /// `None`: the check does not speak TLS.
    pub tls: Option<CheckTls>,
    /// The request, and the status codes that count as success. `None`: a connection, with its TLS
    /// handshake if there is TLS, is enough.
    pub request: Option<(String, StatusCodes)>,
    /// Interval between checks.
    pub every_ms: u64,
    /// Timeout of a check.
    pub timeout_ms: u64,
    /// Consecutive successes after which the backend is up.
    pub rise: u32,
    /// Consecutive failures after which the backend is down.
    pub fall: u32,
}

impl Task {
    /// Writes the task to a memory file for a scout.
    pub fn write(&self) -> io::Result<Fd> {
        let profiles = self.profiles.iter();
        let texts = Texts::of(profiles.flat_map(|profile| &profile.pem.revocation.crls));
        let keys = self.identities().map(|pem| pem.key.as_bytes());
        let keys = parts::join_secrets(keys.chain(texts.parts()).collect());
        parts::write(&[], &serde_json::to_vec(self)?, &keys)
    }

    /// Client certificates for backends.
    fn identities(&self) -> impl Iterator<Item = &Pem> {
        let profiles = self.profiles.iter();
        profiles.filter_map(|profile| profile.pem.identity.as_ref())
    }

    /// Reads and closes the memory file.
    pub(super) fn read(fd: Fd) -> io::Result<Task> {
        let [_, task, keys, ..] = parts::locate(fd)?;
        let read = serde_json::from_slice(&parts::read(fd, task)?);
        let keys = parts::read(fd, keys);
        fd.close();
        let (mut task, keys): (Task, _) = (read?, keys?);
        let mut rest = keys.as_slice();
        let profiles = task.profiles.iter_mut();
        for identity in profiles.filter_map(|profile| profile.pem.identity.as_mut()) {
            let key = parts::take_secret(&mut rest)?.to_vec();
            let key = String::from_utf8(key).map_err(io::Error::other)?;
            identity.change(|identity| identity.key = key);
        }
        let profiles = task.profiles.iter_mut();
        let lists = profiles.flat_map(|profile| &mut profile.pem.revocation.crls);
        set_texts(lists, &mut rest)?;
        Ok(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_handover::lists::RevocationList;
    use dormouse_handover::{PemContents, Revocation};

    #[test]
    fn a_task_survives_the_memory_file() {
        let task = Task {
            names: vec!["app.example:80".to_owned()],
            schedule: Some(LookupSchedule {
                every_ms: 30_000,
                ttl_min_ms: 1_000,
                ttl_max_ms: 3_600_000,
            }),
            checks: vec![Check {
                backend: "10.0.0.1:80".to_owned(),
                source: Some([10, 0, 0, 2].into()),
                preface: Vec::new(),
                tls: Some(CheckTls {
                    profile: 0,
                    server_name: "app.example".to_owned(),
                }),
                request: None,
                every_ms: 2_000,
                timeout_ms: 1_000,
                rise: 2,
                fall: 3,
            }],
            profiles: vec![TlsProfile {
                pem: OriginPem {
                    roots: Some("roots".to_owned()),
                    revocation: Revocation {
                        crls: vec![RevocationList::new(
                            "list.pem".to_owned(),
                            "list".to_owned(),
                        )],
                        ocsp_required: true,
                    },
                    identity: Some(Pem::from(PemContents {
                        name: "own.pem".to_owned(),
                        key_name: "own.key".to_owned(),
                        chain: "chain".to_owned(),
                        ocsp: Vec::new(),
                        ocsp_from_file: false,
                        is_pushed: false,
                        key: "key".to_owned(),
                    })),
                },
                alpn: vec!["http/1.1".to_owned()],
                ids: None,
            }],
        };
        let fd = task.write().expect("a memory file");
        assert!(Task::read(fd).expect("a task") == task);
    }
}
