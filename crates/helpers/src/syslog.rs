//! Messages to syslog (RFC 5424), of the program's log and of the connection log.

use dormouse_config::SyslogFacility;
use dormouse_reactor::process;
pub use syslog_fmt::Severity;
use syslog_fmt::Facility;
use syslog_fmt::v5424::{Config, Formatter, Msg, Timestamp};

/// What messages say of where they come from.
const APP_NAME: &str = "dormouse";
/// Longest text of a message: syslog servers cut or refuse what is longer than 8 KiB.
const TEXT_MAX: usize = 8_000;

/// The messages of this machine.
pub struct Syslog {
    facility: SyslogFacility,
    host: Option<String>,
}

impl Syslog {
    /// Messages of this facility.
    pub fn new(facility: SyslogFacility) -> Syslog {
        let host = process::host_name();
        Syslog { facility, host }
    }

    /// Not kept: a process that forks goes on under another number.
    fn formatter(&self) -> Formatter {
        let pid = std::process::id().to_string();
        let config = Config {
            facility: known(self.facility),
            hostname: self.host.as_deref(),
            app_name: Some(APP_NAME),
            proc_id: Some(&pid),
        };
        config.into_formatter()
    }

    /// A message. `time` is as in RFC 3339, in UTC; `None`: the receiver's time counts. `id`, one word, is the
    /// kind of message.
    pub fn message(&self, severity: Severity, time: Option<&str>, id: &str, text: &str) -> Vec<u8> {
        let time = time.map_or(Timestamp::None, Timestamp::PreformattedStr);
        let text = shortened(text.trim_end());
        // As bytes: a byte order mark, which the RFC wants before UTF-8, ends up in people's files.
        let text = Msg::NonUnicodeBytes(text.as_bytes());
        let mut message = Vec::new();
        // Writing into a vector can't fail.
        let _ = self
            .formatter()
            .write_without_data(&mut message, severity, time, text, Some(id));
        message
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=TEXT_MAX.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn known(facility: SyslogFacility) -> Facility {
    match facility {
        SyslogFacility::User => Facility::User,
        SyslogFacility::Daemon => Facility::Daemon,
        SyslogFacility::Authpriv => Facility::Authpriv,
        SyslogFacility::Local0 => Facility::Local0,
        SyslogFacility::Local1 => Facility::Local1,
        SyslogFacility::Local2 => Facility::Local2,
        SyslogFacility::Local3 => Facility::Local3,
        SyslogFacility::Local4 => Facility::Local4,
        SyslogFacility::Local5 => Facility::Local5,
        SyslogFacility::Local6 => Facility::Local6,
        SyslogFacility::Local7 => Facility::Local7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_of_rfc_5424() {
        let syslog = Syslog::new(SyslogFacility::Local1);
        let time = Some("2026-11-22T08:34:56.007Z");
        let message = syslog.message(Severity::Warning, time, "log", "é\n");
        let message = String::from_utf8(message).expect("text");
        let words: Vec<&str> = message.split(' ').collect();
        let pid = std::process::id().to_string();
        // Local use 1 is 17, a warning 4.
        assert_eq!(words[..2], ["<140>1", "2026-11-22T08:34:56.007Z"]);
        assert_eq!(words[3..], ["dormouse", &pid, "log", "-", "é"]);

        let long = syslog.message(Severity::Info, None, "log", &"é".repeat(8_000));
        let long = String::from_utf8(long).expect("whole characters");
        assert!(long.starts_with("<142>1 - ") && long.len() < 8_200);
    }
}
