//! Logging of connection secrets, so that tools like Wireshark can decrypt captured traffic.

use std::fmt;

/// Receives the secrets of every connection of a context.
///
/// Anyone with the secrets can read and forge the traffic. A program must set this hook only at its operator's
/// request, never by default.
pub trait SecretLog: fmt::Debug + Send + Sync {
    /// Receives one secret: its label in the NSS key log format (`CLIENT_TRAFFIC_SECRET_0`), the ClientHello's
    /// random bytes, which identify the connection, and the secret.
    fn log_secret(&self, label: &str, client_random: &[u8], secret: &[u8]);
}

/// Returns a line of a key log file without its line feed: label, random bytes and secret.
pub fn secret_log_line(label: &str, client_random: &[u8], secret: &[u8]) -> String {
    let mut line =
        String::with_capacity(label.len() + 2 + 2 * (client_random.len() + secret.len()));
    line.push_str(label);
    for bytes in [client_random, secret] {
        line.push(' ');
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                line.extend(char::from_digit(digit.into(), 16));
            }
        }
    }
    line
}
