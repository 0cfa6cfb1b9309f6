//! Plain descriptions of the TLS library's certificate errors.

/// Describes why a certificate cannot be used, without the library's type names.
pub(crate) fn in_words(error: &rustls::Error) -> String {
    let text = error.to_string();
    let known = [
        (
            "UnsupportedCertVersion",
            "it is an X.509 certificate of version 1 or 2, and version 3 is needed: create it again \
             with extensions, as `openssl req -x509` does",
        ),
        ("BadDer", "its DER is invalid"),
        ("BadEncoding", "its DER is invalid"),
    ];
    let found = known.iter().find(|(name, _)| text.contains(name));
    found.map_or_else(|| text.clone(), |(_, words)| (*words).to_owned())
}
