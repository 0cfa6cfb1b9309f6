//! Files from ACME servers, readable only by their owner:
//!
//! ```text
//!   acme_folder/HOST/account.json    the account at the server HOST
//!   acme_folder/HOST/NAME.pem        the certificate for NAME, its chain and its key; `_` in place of a wildcard's `*`
//! ```
//!
//! A file is replaced as a whole: written under another name, then renamed. Main does not wait until the disk has a
//! certificate, which takes seconds on a busy disk: after a power failure the next start orders another. The account is
//! written once, and some servers accept an External Account Binding once, so main waits for that.

use super::files::can_write_into;
use super::former::Former;
use super::pair::{keep_response, read_pair};
use super::trust::authorities;
use crate::material::findings::Findings;
use dormouse_config::{AcmeChallenge, Config, DnsServer, Place, Route};
use dormouse_engine::IdentityWarning;
use dormouse_handover::Pem;
use dormouse_handover::unix_time;
use dormouse_helpers::errand::tsig::{self, TsigKey};
use dormouse_helpers::errand::{Account, DnsUpdates, DnsWay};
use dormouse_helpers::private_file::read_private;
use dormouse_reactor::file::{replace_private, replace_private_soon};
use dormouse_reactor::process;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const ACCOUNT: &str = "account.json";
/// Maximum size of an account file.
const ACCOUNT_LEN_MAX: u64 = 16 << 10;

/// The folder of the configured server.
fn folder(config: &Config) -> PathBuf {
    let acme = &config.acme;
    let host = acme.acme_server.trim_start_matches("https://");
    let host = host.split('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let host: String = host
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    // Never `.` or `..`, and never a hidden folder.
    acme.acme_folder
        .join(host.replace("..", "_").trim_start_matches('.'))
}

/// Path of the file with a name's certificate and key.
pub fn file_of(config: &Config, name: &str) -> PathBuf {
    folder(config).join(file_name(name))
}

/// A wildcard's file begins with `_`, which no name has: `*` means all files to a shell.
fn file_name(name: &str) -> String {
    match name.strip_prefix('*') {
        Some(rest) => format!("_{rest}.pem"),
        None => format!("{name}.pem"),
    }
}

/// Checks that certificates can be saved, and that there is a trusted CA for the server.
pub(super) fn check(config: &Config, findings: &mut Findings) {
    if config.acme_names().is_empty() {
        return;
    }
    let folder = folder(config);
    if let Err(error) = can_write_into(&folder) {
        let what = format!(
            "{}: cannot save certificates: {error}\ncreate the directory with write access for the user who starts dormouse, or set another one in acme_folder",
            folder.display()
        );
        findings.error(Place::Program("acme_folder"), what);
    }
    if let Err(why) = authorities(&config.acme.acme_ca) {
        findings.error(Place::Program("acme_ca"), why);
    }
    if let Err(why) = binding_key(config) {
        findings.error(Place::Program("acme_eab_key_file"), why);
    }
    if let Err(why) = dns_way(config) {
        findings.error(Place::Program("acme_dns_key_file"), why);
    }
    check_hook(config, findings);
}

/// Reads the issued certificates of a route. If one cannot be read, its previous version stays; so does a newer one, which
/// could not be saved. A certificate that was never issued is no error: it is ordered later.
pub(super) fn load(config: &Config, route: &Route, former: &Former<'_>) -> (Vec<Pem>, Vec<String>) {
    let mut complaints = Vec::new();
    let pems = route.acme.iter().filter_map(|name| {
        let file = file_of(config, name.as_str());
        let shown = file.display().to_string();
        let known = former.named(&shown);
        if !file.exists() {
            return known.cloned();
        }
        match read(&file, name.as_str(), known) {
            Ok(mut pem) => {
                // Nearly always they are the same, and nothing needs to be parsed.
                let in_use = known.filter(|in_use| in_use.chain != pem.chain);
                if in_use.is_some_and(|in_use| is_newer(in_use, &pem)) {
                    return in_use.cloned();
                }
                keep_response(&mut pem, former);
                Some(pem)
            }
            Err(why) => {
                complaints.extend(why);
                known.cloned()
            }
        }
    });
    (pems.collect(), complaints)
}

/// Whether a certificate begins later than another one.
fn is_newer(pem: &Pem, than: &Pem) -> bool {
    let begins_at_s = |pem: &Pem| pem.identity().ok().map(|identity| identity.begins_at_s());
    begins_at_s(pem) > begins_at_s(than)
}

fn read(file: &Path, name: &str, known: Option<&Pem>) -> Result<Pem, Vec<String>> {
    let mut mistakes = Vec::new();
    let Some(read) = read_pair(file, file, None, None, &mut mistakes) else {
        return Err(mistakes);
    };
    let same = known.filter(|known| known.chain == read.chain && known.key == read.key);
    let pem = same.cloned().unwrap_or(read);
    check_for(&pem, name).map_err(|why| vec![why])?;
    Ok(pem)
}

/// Checks that this is a certificate for the name, with a matching key.
pub(crate) fn check_for(pem: &Pem, name: &str) -> Result<(), String> {
    let identity = pem.identity().map_err(|error| error.to_string())?;
    let mut names = identity.names().iter();
    if !names.any(|other| other.eq_ignore_ascii_case(name)) {
        return Err(format!("{}: the certificate is not for {name}", pem.name));
    }
    // Its own dates are not the operator's business: it is renewed in time, and a failure has a line of its own.
    let is_for_operator = |warning: &IdentityWarning| !matches!(warning, IdentityWarning::Dates(_));
    for warning in identity
        .warnings(unix_time())
        .iter()
        .filter(|one| is_for_operator(one))
    {
        tracing::warn!(
            warning = format!("{}: {warning}", pem.name),
            "certificate warning"
        );
    }
    Ok(())
}

/// Saves the certificate for a name.
pub(crate) fn keep(config: &Config, name: &str, pem: &Pem) -> Result<(), String> {
    let mut text = Zeroizing::new(String::with_capacity(pem.chain.len() + pem.key.len() + 2));
    for part in [&pem.chain, &pem.key] {
        text.push_str(part);
        if !part.ends_with('\n') {
            text.push('\n');
        }
    }
    let folder = folder(config);
    make(&folder)
        .and_then(|()| replace_private_soon(&folder.join(file_name(name)), text.as_bytes()))
        .map_err(|error| format!("{}/{}: {error}", folder.display(), file_name(name)))
}

/// Whether the file for a name has this certificate.
pub(crate) fn is_saved(config: &Config, name: &str, pem: &Pem) -> bool {
    let file = file_of(config, name);
    let found = read_pair(&file, &file, None, None, &mut Vec::new());
    found.is_some_and(|found| found.chain == pem.chain)
}

/// Adds the certificate for a name to all routes with that name, in place of its previous version.
pub(crate) fn place(config: &Config, certificates: &mut [Vec<Pem>], name: &str, pem: &Pem) {
    for (route, pems) in config.routes.iter().zip(certificates) {
        if !route.acme.iter().any(|other| other.as_str() == name) {
            continue;
        }
        pems.retain(|other| other.name != pem.name);
        pems.push(pem.clone());
        // After the certificates from files, in the order of the names.
        let files = route.acme.iter().map(|name| file_of(config, name.as_str()));
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        pems.sort_by_key(|pem| {
            files
                .iter()
                .position(|file| *file == pem.name)
                .map(|n| n + 1)
        });
    }
}

/// Reads the account at the configured server, if there is one.
pub(crate) fn account(config: &Config) -> Result<Option<Account>, String> {
    let path = folder(config).join(ACCOUNT);
    let Some(text) = read_private(&path, ACCOUNT_LEN_MAX)? else {
        return Ok(None);
    };
    let account: Account = serde_json::from_slice(&text)
        .map_err(|error| format!("{}: not an account file: {error}", path.display()))?;
    Ok((account.directory == config.acme.acme_server).then_some(account))
}

/// Saves the account.
pub(crate) fn keep_account(config: &Config, account: &Account) -> Result<(), String> {
    let mut text = Zeroizing::new(Vec::with_capacity(ACCOUNT_LEN_MAX as usize));
    let folder = folder(config);
    serde_json::to_writer(&mut *text, account)
        .map_err(io::Error::other)
        .and_then(|()| make(&folder))
        .and_then(|()| replace_private(&folder.join(ACCOUNT), &text))
        .and_then(|()| fs::File::open(&folder)?.sync_all())
        .map_err(|error| format!("{}/{ACCOUNT}: {error}", folder.display()))
}

/// Reads the key for External Account Binding.
pub(crate) fn binding_key(config: &Config) -> Result<Option<Zeroizing<String>>, String> {
    let Some(path) = &config.acme.acme_eab_key_file else {
        return Ok(None);
    };
    let shown = path.display();
    let missing = || {
        format!("{shown}: no such file\nsave the authority's key there, readable only by its owner")
    };
    let bytes = read_private(path, ACCOUNT_LEN_MAX)?.ok_or_else(missing)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let is_base64url = |c: char| c.is_ascii_alphanumeric() || "-_=".contains(c);
    let key = text.trim();
    if key.is_empty() || !key.chars().all(is_base64url) {
        return Err(format!("{shown}: the file has no key in base64url"));
    }
    Ok(Some(Zeroizing::new(key.to_owned())))
}

/// Where to write the records of dns-01. `None`: another challenge is configured.
pub(crate) fn dns_way(config: &Config) -> Result<Option<DnsWay>, String> {
    let acme = &config.acme;
    if acme.acme_challenge != AcmeChallenge::Dns01 {
        return Ok(None);
    }
    let wait_s = acme.acme_dns_wait.as_secs();
    let Some(DnsServer(server)) = acme.acme_dns_server else {
        return Ok(Some(DnsWay::Hook { wait_s }));
    };
    let key = acme.acme_dns_key_file.as_ref().map(|path| {
        let shown = path.display();
        let missing = || {
            format!("{shown}: no such file\nmake a key with tsig-keygen, readable only by its owner, and name it in the DNS server's configuration")
        };
        let bytes = read_private(path, tsig::KEY_FILE_MAX)?.ok_or_else(missing)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| format!("{shown}: the file is not text"))?;
        TsigKey::parse(text).map_err(|why| format!("{shown}: {why}"))
    });
    Ok(Some(DnsWay::Updates(DnsUpdates {
        server,
        key: key.transpose()?,
        wait_s,
    })))
}

/// The user of `acme_dns_hook`, if it is another one than main's or nobody.
pub(crate) fn hook_user(config: &Config) -> Result<Option<(u32, u32)>, String> {
    let Some(name) = &config.acme.acme_dns_hook_user else {
        return Ok(None);
    };
    let user = process::look_up_user(name, None)?;
    let own = process::user_id();
    if own != 0 && own != user.uid {
        return Err(format!(
            "cannot run a program as the user `{name}`; start as root, or remove this"
        ));
    }
    Ok(Some((user.uid, user.gid)))
}

/// Checks that there is a program to run, and its user.
fn check_hook(config: &Config, findings: &mut Findings) {
    if let Err(why) = hook_user(config) {
        findings.error(Place::Program("acme_dns_hook_user"), why);
    }
    let Some(path) = &config.acme.acme_dns_hook else {
        return;
    };
    let is_program =
        |found: fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    let why = match fs::metadata(path).map(is_program) {
        Ok(true) => return,
        Ok(false) => "not an executable file".to_owned(),
        Err(error) => error.to_string(),
    };
    findings.error(
        Place::Program("acme_dns_hook"),
        format!("{}: {why}", path.display()),
    );
}

/// Creates the folder, for its owner alone.
fn make(folder: &Path) -> io::Result<()> {
    match folder.is_dir() {
        true => Ok(()),
        false => {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::Material;
    use dormouse_config::{Flag, Machine, Section};
    use dormouse_engine::Identity;

    /// A certificate for a.example that is valid from 2010 on, and its key.
    const OLD: &str = "\
-----BEGIN CERTIFICATE-----
MIIBCTCBsKADAgECAgEBMAoGCCqGSM49BAMCMAAwHhcNMTAwMTAxMDAwMDAwWhcN
NDAwMTAxMDAwMDAwWjAAMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEKVPiiTre
TBAoUc1y/E6XA+KZWcSBu4RIbZ+7gazajeJ5jxQGRZocPh0rFP9c1JvIsWe4HUCZ
8Gddo6MSlXdgIKMbMBkwFwYDVR0RAQH/BA0wC4IJYS5leGFtcGxlMAoGCCqGSM49
BAMCA0gAMEUCICXVS1mPbrvYUknW+UMlJ7ARXW8jqd2d0vVpfglX9ZadAiEAzZqo
azfjcsVtGdfKiIo6E4MCyC/CGd/6jNPqsK/bI5w=
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgrS7hVIsAySvZ95CT
3zFGcqIYCuX0NJTVChPJjdmOV4ChRANCAAQpU+KJOt5MEChRzXL8TpcD4plZxIG7
hEhtn7uBrNqN4nmPFAZFmhw+HSsU/1zUm8ixZ7gdQJnwZ12joxKVd2Ag
-----END PRIVATE KEY-----
";

    /// A full disk kept a certificate from being saved: no reload goes back to the one in the file.
    #[test]
    fn a_newer_certificate_that_is_in_use_precedes_that_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = [
            ("listen", "127.0.0.1:8443"),
            ("to", "echo:"),
            ("acme", "a.example"),
            ("acme-terms-agreed", "true"),
            ("acme-folder", &folder.path().display().to_string()),
        ];
        let flags = flags.map(|(name, value)| Flag::new(name, value));
        let loaded = dormouse_config::load(None, Section::Route, &flags, &Machine::read());
        let config = loaded
            .unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .config;
        let file = file_of(&config, "a.example");
        make(&self::folder(&config)).expect("a folder");
        fs::write(&file, OLD).expect("written");
        let load = |former: &[Pem]| {
            let material = Material {
                certificates: vec![former.to_vec()],
                ..Material::default()
            };
            let former = Former::of(&material, &|_| true);
            let (mut pems, complaints) = load(&config, &config.routes[0], &former);
            assert!(complaints.is_empty(), "{complaints:?}");
            pems.pop().expect("a certificate")
        };
        let of_file = load(&[]);
        // From 2020 on.
        let (chain, key) = Identity::self_signed_pem("a.example").expect("a certificate");
        let mut in_use = of_file.clone();
        in_use.change(|pem| (pem.chain, pem.key) = (chain, key.to_string()));
        assert_eq!(load(std::slice::from_ref(&in_use)).chain, in_use.chain);
        // Another program replaces the file by a newer certificate.
        let text = format!("{}{}", in_use.chain, in_use.key);
        fs::write(&file, text).expect("written");
        assert_eq!(load(&[of_file]).chain, in_use.chain);
    }

    #[test]
    fn files_are_replaced_as_a_whole_and_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inner, old) = (folder.path().join("x/y"), folder.path().join("old"));
        fs::write(&old, "old").expect("written");
        let write = |text: &[u8]| {
            make(&inner).and_then(|()| replace_private_soon(&inner.join("a.pem"), text))
        };
        write(b"one").expect("written");
        std::os::unix::fs::symlink(&old, inner.join("a.pem.new")).expect("a link");
        write(b"two").expect("written again");
        assert_eq!(fs::read(inner.join("a.pem")).expect("read"), b"two");
        assert_eq!(fs::read(&old).expect("read"), b"old", "no link is followed");
        let mode = |path: &Path| {
            fs::metadata(path)
                .expect("an existing file")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode(&inner), mode(&inner.join("a.pem"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&inner).expect("a folder").count(), 1);
    }
}
