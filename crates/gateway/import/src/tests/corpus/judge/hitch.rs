//! hitch.conf, with each setting and each brace in a line of its own.

use super::{Demanded, Demands};

type Settings = Vec<(String, String)>;

/// Returns the settings above the frontends, and those of each frontend.
fn read(text: &str) -> (Settings, Vec<Settings>) {
    let text = text
        .replace("\" ", "\"\n")
        .replace('{', "{\n")
        .replace('}', "\n}\n");
    let (mut all, mut frontends) = (Settings::new(), Vec::new());
    let mut open: Vec<(String, Settings)> = Vec::new();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        if line == "}" {
            let closed = open.pop().filter(|(key, _)| key == "frontend");
            frontends.extend(closed.map(|(_, inner)| inner));
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let (key, value) = (
            key.trim().to_owned(),
            value.trim().trim_matches('"').to_owned(),
        );
        match (open.last_mut(), value.as_str()) {
            (_, "{") => open.push((key, Vec::new())),
            (Some((_, inner)), _) => inner.push((key, value)),
            (None, _) if key == "frontend" => {
                let address = value.split('+').next().unwrap_or_default();
                let port = address.rsplit(':').next().unwrap_or_default().to_owned();
                frontends.push(vec![("port".to_owned(), port)]);
            }
            (None, _) => all.push((key, value)),
        }
    }
    (all, frontends)
}

pub(super) fn demands(text: &str) -> Demands {
    let (all, frontends) = read(text);
    let mut demands = Demands::new();
    for own in frontends {
        let find = |list: &[(String, String)], key: &str| {
            let mut list = list.iter().rev();
            list.find(|(one, _)| one == key)
                .map(|(_, value)| value.clone())
        };
        let last = |key: &str| find(&own, key).or_else(|| find(&all, key));
        let is_on = |key: &str| {
            last(key).is_some_and(|value| ["on", "yes", "true"].contains(&value.as_str()))
        };
        let headers = [
            "write-proxy",
            "write-proxy-v1",
            "write-proxy-v2",
            "write-ip",
            "proxy-proxy",
        ];
        let mut these = Demanded::default();
        let verify = last("client-verify");
        these.when(
            verify.as_deref() == Some("required"),
            "requires a certificate",
        );
        these.when(is_on("sni-nomatch-abort"), "refuses unknown names");
        these.when(is_on("proxy-proxy"), "expects a header");
        these.when(headers.iter().any(|key| is_on(key)), "sends a header");
        these.at(&last("port").unwrap_or_default(), &mut demands);
    }
    demands
}
