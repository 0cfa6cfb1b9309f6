//! Syslog messages for the program's log and the connection log.
//!
//! Over UDP, messages have the format of RFC 5424. On a Unix socket they have the format of the C library's syslog(3):
//! rsyslog in its usual configuration and systemd's journal read no other format there. That format is sent without a
//! time, because it would be in the machine's time zone; the receiver adds the time.

use dormouse_config::{SyslogAddress, SyslogFacility};
use dormouse_reactor::process;
use syslog_fmt::Facility;
pub use syslog_fmt::Severity;
use syslog_fmt::v5424::{Config, Formatter, Msg, Timestamp};

/// Program name in messages.
const APP_NAME: &str = "dormouse";
/// Maximum length of a message's text: syslog servers truncate or refuse messages longer than 8 KiB.
const TEXT_MAX: usize = 8_000;

/// A kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line of the program's log.
    Log,
    /// A line of the connection log.
    Connection,
}

impl Kind {
    /// Returns the MSGID of RFC 5424.
    fn id(self) -> &'static str {
        match self {
            Kind::Log => "log",
            Kind::Connection => "connection",
        }
    }

    /// Returns the program name for the format without a MSGID.
    fn tag(self) -> &'static str {
        match self {
            Kind::Log => APP_NAME,
            Kind::Connection => "dormouse-connection",
        }
    }
}

/// Formats messages for one address.
pub struct Syslog {
    facility: SyslogFacility,
    host: Option<String>,
    is_local: bool,
}

impl Syslog {
    /// Creates a formatter for messages of this facility to this address.
    pub fn new(address: &SyslogAddress, facility: SyslogFacility) -> Syslog {
        Syslog {
            facility,
            host: process::host_name(),
            is_local: matches!(address, SyslogAddress::Unix(_)),
        }
    }

    /// Created for each message: after a fork the process id differs.
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

    /// Formats a message. `time` is in RFC 3339 format, in UTC; `None`: the receiver adds its own time.
    pub fn message(
        &self,
        kind: Kind,
        severity: Severity,
        time: Option<&str>,
        text: &str,
    ) -> Vec<u8> {
        let text = shortened(text.trim_end());
        if self.is_local {
            let priority = known(self.facility) as u8 | severity as u8;
            let (tag, pid) = (kind.tag(), std::process::id());
            return format!("<{priority}>{tag}[{pid}]: {text}").into_bytes();
        }
        // `Timestamp::None` would write a space too many.
        let time = Timestamp::PreformattedStr(time.unwrap_or("-"));
        // As bytes: the byte order mark that the RFC requires before UTF-8 would end up in log files.
        let text = Msg::NonUnicodeBytes(text.as_bytes());
        let mut message = Vec::new();
        // Writing to a vector cannot fail.
        let _ = self.formatter().write_without_data(
            &mut message,
            severity,
            time,
            text,
            Some(kind.id()),
        );
        message
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=TEXT_MAX.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
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

    const TIME: Option<&str> = Some("2026-11-22T08:34:56.007Z");

    fn text(message: Vec<u8>) -> String {
        String::from_utf8(message).expect("text that ends between characters")
    }

    #[test]
    fn by_udp_a_message_is_one_of_rfc_5424() {
        let address = SyslogAddress::Udp(([127, 0, 0, 1], 514).into());
        let syslog = Syslog::new(&address, SyslogFacility::Local1);
        let message = text(syslog.message(Kind::Log, Severity::Warning, TIME, "é\n"));
        let words: Vec<&str> = message.split(' ').collect();
        let pid = std::process::id().to_string();
        // Facility local1 is 17, severity warning is 4.
        assert_eq!(words[..2], ["<140>1", "2026-11-22T08:34:56.007Z"]);
        assert_eq!(words[3..], ["dormouse", &pid, "log", "-", "é"]);

        let long = text(syslog.message(Kind::Log, Severity::Info, None, &"é".repeat(8_000)));
        assert!(long.starts_with("<142>1 - ") && long.len() < 8_200);
    }

    #[test]
    fn on_a_unix_socket_a_message_is_as_the_c_library_sends_it() {
        let address = SyslogAddress::Unix("/dev/log".into());
        let syslog = Syslog::new(&address, SyslogFacility::Daemon);
        let pid = std::process::id();
        let message = text(syslog.message(Kind::Connection, Severity::Info, TIME, "id=7"));
        assert_eq!(message, format!("<30>dormouse-connection[{pid}]: id=7"));
    }
}
