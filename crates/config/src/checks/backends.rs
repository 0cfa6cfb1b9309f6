//! What must fit together among the backends of a route.

use crate::checks::common::alpn_of;
use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::endpoints::Backend;
use crate::values::host_name::is_host;
use crate::values::pem_files::Ca;
use crate::values::probe::Probe;
use crate::values::upstream::Upstream;

/// Reports what does not fit among the backends of a route.
pub(crate) fn check(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !at.sound(&["to"]) {
        return;
    }
    if route.to.is_empty() {
        mistakes.error(
            &at.location("to", None),
            Problem::new("this list is empty, so plaintext could go nowhere")
                .help("to = \"127.0.0.1:8080\""),
        );
    }
    if route.is_echo() && route.to.len() > 1 {
        mistakes.error(
            &at.location("to", None),
            Problem::new("`echo:` answers by itself, so it can't share a route with backends")
                .label("remove it, or the others"),
        );
    }
    for (n, upstream) in route.to.iter().enumerate() {
        let earlier = route.to.iter().take(n);
        if earlier
            .clone()
            .any(|other| other.backend == upstream.backend)
        {
            mistakes.error(
                &at.location("to", Some(n)),
                Problem::new(format!("{upstream} is listed twice"))
                    .label("remove one of the two")
                    .help("`weight` gives one backend more than others"),
            );
        }
    }
    check_tls(route, at, mistakes);
    if !route.to.is_empty() && route.to.iter().all(|upstream| upstream.backup) {
        mistakes.error(
            &at.location("to", None),
            Problem::new("every backend here is a backup, and none is what they are a backup for")
                .help("remove `backup` from one of them"),
        );
    }
}

/// Reports what does not fit with, or without, TLS to the backends.
fn check_tls(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if route.check == Probe::Tls && !route.backend_tls && !route.pass_through {
        mistakes.error(
            &at.location("check", None),
            Problem::new("TLS is not spoken with these backends")
                .help("check = \"connect\"; or add backend_tls = true"),
        );
    }
    if !route.backend_tls {
        let given = [
            ("backend_ca", route.backend_ca != Ca::System),
            ("backend_name", route.backend_name.is_some()),
            (
                "backend_certificates",
                !route.backend_certificates.is_empty(),
            ),
            ("backend_alpn", !route.backend_alpn.is_empty()),
        ];
        for (name, _) in given.iter().filter(|(_, is_given)| *is_given) {
            let problem = Problem::new(format!(
                "`{name}` is of no use: TLS is not spoken with backends"
            ));
            mistakes.warning(
                &at.location(name, None),
                problem.help("add backend_tls = true"),
            );
        }
        return;
    }
    let location = at.location("backend_tls", None);
    if route.is_echo() {
        mistakes.error(
            &location,
            Problem::new("`echo:` answers by itself: there is nobody to speak TLS with"),
        );
    }
    if route.pass_through {
        mistakes.error(
            &location,
            Problem::new("TLS is between client and backend here (`pass_through`)")
                .label("remove one of the two"),
        );
    }
    let is_unix = |upstream: &&Upstream| matches!(upstream.backend, Backend::Unix(_));
    if let (Some(upstream), None) = (route.to.iter().find(is_unix), &route.backend_name) {
        mistakes.error(
            &location,
            Problem::new(format!(
                "{upstream} has no name that its certificate could be for"
            ))
            .help("say it: backend_name = \"app.example.com\""),
        );
    }
    if route.backend_certificates.len() > 1 {
        mistakes.error(
            &at.location("backend_certificates", Some(1)),
            Problem::new("a client has one certificate").label("remove all but one"),
        );
    }
    let name = route.backend_name.as_ref();
    if let Some(name) = name.filter(|name| !is_host(name) || name.starts_with("*.")) {
        mistakes.error(
            &at.location("backend_name", None),
            Problem::new(format!("`{name}` is neither a host name nor an IP address"))
                .help("write the name that the backends' certificate is for, without a port"),
        );
    }
    alpn_of(at, "backend_alpn", &route.backend_alpn, mistakes);
}
