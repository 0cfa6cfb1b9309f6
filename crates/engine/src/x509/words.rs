//! Errors of the TLS library about certificates, in words.

/// Why a certificate can't be used, without the names of a library's types.
pub(crate) fn in_words(error: &rustls::Error) -> String {
    let text = error.to_string();
    let known = [
        (
            "UnsupportedCertVersion",
            "it is an X.509 certificate of version 1 or 2, and version 3 is needed: make it anew with \
             extensions, as `openssl req -x509` does",
        ),
        ("BadDer", "it is broken: its DER can't be read"),
        ("BadEncoding", "it is broken: its DER can't be read"),
    ];
    let found = known.iter().find(|(name, _)| text.contains(name));
    found.map_or_else(|| text.clone(), |(_, words)| (*words).to_owned())
}
