//! Environment of an audited client: the address to connect to and the authority to trust.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;

use super::authority::Authority;
use dormouse_measure::Error;

/// Variables that name the file of trusted certificates, by library.
const TRUST_VARIABLES: [&str; 14] = [
    "SSL_CERT_FILE",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PERL_LWP_SSL_CA_FILE",
    "HTTPS_CA_FILE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "DORMOUSE_CA",
];
/// Variable with options for every JVM; the JVM reads no PEM file.
const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";
/// Variables that list names to be reached without a proxy.
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Directory names to try: a run that was killed leaves its directory behind.
const NAMES_TRIED: u32 = 100;

/// Files and variables of a run. The files are deleted at its end.
pub(super) struct Environment {
    address: SocketAddr,
    ca: PathBuf,
    java_store: PathBuf,
    _directory: Directory,
}

impl Environment {
    /// Writes the authority's certificate, to `ca_file` if given.
    pub(super) fn make(
        address: SocketAddr,
        authority: &Authority,
        ca_file: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let directory = Directory::make()?;
        let environment = Self {
            address,
            ca: ca_file.unwrap_or_else(|| directory.0.join("ca.pem")),
            java_store: directory.0.join("ca.jks"),
            _directory: directory,
        };
        let files = [
            (&environment.ca, authority.pem.as_bytes()),
            (&environment.java_store, &java_store(&authority.der)),
        ];
        for (path, content) in files {
            std::fs::write(path, content).map_err(|error| {
                Error::system(format!("cannot write {}: {error}", path.display()))
            })?;
        }
        Ok(environment)
    }

    pub(super) fn ca(&self) -> &Path {
        &self.ca
    }

    /// URL of the audit's server: by name, unless it listens at one address that the name does not stand for.
    pub(super) fn url(&self) -> String {
        if is_localhost(self.address.ip()) {
            format!("https://localhost:{}/", self.address.port())
        } else {
            format!("https://{}/", self.address)
        }
    }

    /// Replaces the placeholders in a word of the command.
    pub(super) fn fill(&self, word: &str) -> String {
        word.replace("{url}", &self.url())
            .replace("{address}", &self.address.to_string())
            .replace("{port}", &self.address.port().to_string())
            .replace("{ca}", &self.ca.display().to_string())
    }

    /// Variables that are added to the client's environment.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let ca = self.ca.display().to_string();
        let mut variables: Vec<_> = TRUST_VARIABLES
            .iter()
            .map(|name| (*name, ca.clone()))
            .collect();
        variables.push(("DORMOUSE_URL", self.url()));
        variables.push(("DORMOUSE_ADDRESS", self.address.to_string()));
        variables.push(("DORMOUSE_PORT", self.address.port().to_string()));
        let java = format!(
            "-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStoreType=JKS",
            self.java_store.display()
        );
        variables.push((JAVA_VARIABLE, with_own(JAVA_VARIABLE, " ", &java)));
        let here = format!("localhost,127.0.0.1,::1,{}", self.address.ip());
        for name in NO_PROXY_VARIABLES {
            variables.push((name, with_own(name, ",", &here)));
        }
        variables
    }
}

/// Whether a server at this address is reached by the name `localhost`.
fn is_localhost(ip: IpAddr) -> bool {
    ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

/// Appends `more` to the variable's current value.
fn with_own(name: &str, between: &str, more: &str) -> String {
    match std::env::var(name) {
        Ok(own) if !own.is_empty() => format!("{own}{between}{more}"),
        _ => more.to_owned(),
    }
}

/// A Java key store (JKS) that holds one trusted certificate.
///
/// A JVM reads it without a password, as it reads its own store. The digest at the end is checked only with a password
/// and is computed for the default one.
fn java_store(certificate: &[u8]) -> Vec<u8> {
    const PASSWORD: &str = "changeit";
    let mut store = Vec::new();
    let number = |store: &mut Vec<u8>, value: u32| store.extend_from_slice(&value.to_be_bytes());
    let text = |store: &mut Vec<u8>, text: &str| {
        store.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
        store.extend_from_slice(text.as_bytes());
    };
    number(&mut store, 0xfeed_feed);
    number(&mut store, 2); // its version
    number(&mut store, 1); // entries
    number(&mut store, 2); // the kind: a trusted certificate
    text(&mut store, "dormouse-audit");
    store.extend_from_slice(&0_u64.to_be_bytes()); // when it was made
    text(&mut store, "X.509");
    number(&mut store, u32::try_from(certificate.len()).unwrap_or(0));
    store.extend_from_slice(certificate);
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        hash.update(&unit.to_be_bytes());
    }
    hash.update(b"Mighty Aphrodite");
    hash.update(&store);
    store.extend_from_slice(hash.finish().as_ref());
    store
}

/// A directory that is deleted at the end of the run.
struct Directory(PathBuf);

impl Directory {
    /// The directory must be new: the owner of an existing one could change what the client trusts.
    fn make() -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o755);
        let mut path = PathBuf::new();
        let mut made = Ok(());
        for number in 0..NAMES_TRIED {
            let name = format!("dormouse-audit-{}-{number}", std::process::id());
            path = std::env::temp_dir().join(name);
            made = builder.create(&path);
            if !matches!(&made, Err(error) if error.kind() == ErrorKind::AlreadyExists) {
                break;
            }
        }
        made.map_err(|error| Error::system(format!("cannot make {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_leads_to_the_address_of_the_server() {
        let url = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            let (authority, _) = Authority::make(address).unwrap();
            Environment::make(address, &authority, None).unwrap().url()
        };
        assert_eq!(url("127.0.0.1:8443"), "https://localhost:8443/");
        assert_eq!(url("0.0.0.0:8443"), "https://localhost:8443/");
        assert_eq!(url("[::1]:8443"), "https://localhost:8443/");
        assert_eq!(url("127.0.0.2:8443"), "https://127.0.0.2:8443/");
        assert_eq!(url("192.0.2.1:8443"), "https://192.0.2.1:8443/");
        assert_eq!(url("[2001:db8::1]:8443"), "https://[2001:db8::1]:8443/");
    }
}
