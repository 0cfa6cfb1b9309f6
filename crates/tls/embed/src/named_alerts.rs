//! Alerts by the names that runtimes show.

/// Returns OpenSSL's reason for an alert of the peer (`ssl/ssl_err.c`): `tlsv1 alert unknown ca`.
pub fn openssl_reason(alert: u8) -> String {
    let reason = match alert {
        10 => "sslv3 alert unexpected message",
        20 => "sslv3 alert bad record mac",
        22 => "tlsv1 alert record overflow",
        40 => "sslv3 alert handshake failure",
        42 => "sslv3 alert bad certificate",
        43 => "sslv3 alert unsupported certificate",
        44 => "sslv3 alert certificate revoked",
        45 => "sslv3 alert certificate expired",
        46 => "sslv3 alert certificate unknown",
        47 => "sslv3 alert illegal parameter",
        48 => "tlsv1 alert unknown ca",
        49 => "tlsv1 alert access denied",
        50 => "tlsv1 alert decode error",
        51 => "tlsv1 alert decrypt error",
        70 => "tlsv1 alert protocol version",
        71 => "tlsv1 alert insufficient security",
        80 => "tlsv1 alert internal error",
        86 => "tlsv1 alert inappropriate fallback",
        90 => "tlsv1 alert user cancelled",
        100 => "tlsv1 alert no renegotiation",
        109 => "tlsv13 alert missing extension",
        110 => "tlsv1 unsupported extension",
        112 => "tlsv1 unrecognized name",
        113 => "tlsv1 bad certificate status response",
        115 => "tlsv1 alert unknown psk identity",
        116 => "tlsv13 alert certificate required",
        120 => "tlsv1 alert no application protocol",
        other => return format!("alert number {other}"),
    };
    reason.to_owned()
}
