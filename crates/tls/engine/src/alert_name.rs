//! Names of alerts.

use dormouse_record::AlertDescription;

/// Returns the name of an alert as in RFC 8446 §6, or its number.
pub fn alert_name(description: u8) -> String {
    let name = match (AlertDescription::from_code(description), description) {
        (Some(known), _) => known.name(),
        // Only peers send these.
        (None, 21) => "decryption_failed",
        (None, 30) => "decompression_failure",
        (None, 41) => "no_certificate",
        (None, other) => return other.to_string(),
    };
    name.to_owned()
}
