//! stunnel.conf, line by line.

use std::collections::BTreeMap;

use super::{Demanded, Demands};

type Settings = Vec<(String, String)>;

/// Returns the settings above the services, and the services.
fn read(text: &str) -> (Settings, Vec<(String, Settings)>) {
    let mut sections: Vec<(String, Settings)> = vec![(String::new(), Vec::new())];
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            sections.push((name.trim_end_matches(']').to_owned(), Vec::new()));
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with([';', '#'])
        {
            let (key, value) = (key.trim().to_lowercase(), value.trim().to_owned());
            sections.last_mut().expect("a section").1.push((key, value));
        }
    }
    let above = sections.remove(0).1;
    (above, sections)
}

/// The settings that count for a service.
struct Service<'a>(Vec<&'a (String, String)>);

impl Service<'_> {
    fn last(&self, key: &str) -> Option<&str> {
        let mut all = self.0.iter().rev();
        all.find(|(one, _)| one == key)
            .map(|(_, value)| value.as_str())
    }

    fn is_on(&self, key: &str) -> bool {
        self.last(key)
            .is_some_and(|value| value.eq_ignore_ascii_case("yes"))
    }

    /// Returns whether the peer has to show a valid certificate. Of several lines about it, the last one decides,
    /// which this reader does not follow: it judges only clear cases.
    fn verifies(&self) -> bool {
        let level: Option<u8> = self.last("verify").map(|level| level.parse().unwrap_or(0));
        let is_clear = !self
            .0
            .iter()
            .any(|(key, value)| key == "verifychain" && value != "yes")
            && level.is_none_or(|level| level >= 2)
            && self.last("requirecert") != Some("no");
        is_clear && (self.is_on("verifychain") || self.is_on("verifypeer") || level.is_some())
    }
}

pub(super) fn demands(text: &str) -> Demands {
    let (above, sections) = read(text);
    let mut demands = Demands::new();
    // Of two services with one name, the first counts.
    let accept = |own: &'_ Settings| {
        own.iter()
            .rev()
            .find(|(key, _)| key == "accept")
            .map(|(_, value)| value.clone())
    };
    let accepts: BTreeMap<&str, String> = (sections.iter().rev())
        .filter_map(|(name, own)| Some((name.as_str(), accept(own)?)))
        .collect();
    for (_, own) in &sections {
        let service = Service(above.iter().chain(own).collect());
        let sni = service
            .last("sni")
            .and_then(|sni| accepts.get(sni.split(':').next()?));
        let Some(accept) = service.last("accept").or(sni.map(String::as_str)) else {
            continue;
        };
        if service.last("connect").is_none() {
            continue;
        }
        let (is_client, verifies) = (service.is_on("client"), service.verifies());
        let revokes = ["crlfile", "crlpath", "ocsp"]
            .iter()
            .any(|key| service.last(key).is_some());
        let mut these = Demanded::default();
        these.when(verifies && is_client, "verifies the server");
        these.when(verifies && !is_client, "requires a certificate");
        these.when(
            verifies && revokes && is_client,
            "checks revocation of servers",
        );
        these.when(verifies && revokes && !is_client, "checks revocation");
        these.when(
            verifies && !is_client && service.last("checkhost").is_some(),
            "limits certificates",
        );
        these.when(service.last("psksecrets").is_some(), "has a pre-shared key");
        let sends = service
            .last("protocol")
            .is_some_and(|one| one.eq_ignore_ascii_case("proxy"));
        these.when(sends && !is_client, "sends a header");
        these.when(service.is_on("libwrap"), "limits networks");
        these.at(accept, &mut demands);
    }
    demands
}
