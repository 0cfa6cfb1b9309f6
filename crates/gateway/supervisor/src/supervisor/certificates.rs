//! Certificates that an administrator pushes or withdraws. They stay in effect until a reload.

use super::Supervisor;
use crate::configuration::edition::Edition;
use crate::material::{Certificates, Pushed, RouteCertificates};
use crate::reload::report::Cause;
use dormouse_handover::SecretText;

/// The certificates of all routes after an order, and a description of the change.
type Changed = (Certificates, String);

impl Supervisor {
    /// Serves this certificate to clients. The answer is sent when all workers use it.
    pub(super) fn push_certificate(&mut self, id: u64, pem: &SecretText, route: Option<&str>) {
        let changed = push(&self.serving.edition, pem, route);
        self.change_certificates(id, changed);
    }

    /// Serves the certificates from files again.
    pub(super) fn withdraw_certificate(&mut self, id: u64, name: &str, route: Option<&str>) {
        let changed = withdraw(&self.serving.edition, name, route);
        self.change_certificates(id, changed);
    }

    fn change_certificates(&mut self, id: u64, changed: Result<Changed, String>) {
        match changed.and_then(|changed| self.try_certificates(changed)) {
            Ok(words) => {
                tracing::info!(change = words, "certificates changed by an admin command");
                self.reload.wait(Cause::Order, vec![id], words);
                self.finish_reload_if_complete();
            }
            Err(why) => self.answer(id, Err(why)),
        }
    }

    fn try_certificates(&mut self, (certificates, words): Changed) -> Result<String, String> {
        if let Some(why) = self.refusal_of_change() {
            return Err(why);
        }
        let material = self.serving.edition.with_certificates(certificates);
        self.apply_material(material)?;
        Ok(words)
    }
}

/// Adds a certificate to one route, or to all routes with a certificate for one of its names.
fn push(edition: &Edition, pem: &SecretText, route: Option<&str>) -> Result<Changed, String> {
    let pushed = Pushed::read(pem)?;
    let mut certificates = edition.material.certificates.clone();
    let mut changed = Vec::new();
    let all = terminating(edition, &mut certificates);
    let routes: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    for (name, pems) in all {
        if route.is_some_and(|one| one != name) {
            continue;
        }
        let mut all = RouteCertificates::of(pems);
        if route.is_some() || all.have_a_name_of(&pushed) {
            all.add(&pushed)
                .map_err(|why| format!("route {name}: {why}"))?;
            *pems = all.into_pems();
            changed.push(name);
        }
    }
    let names = pushed.names().join(", ");
    if changed.is_empty() {
        return Err(match route {
            Some(route) => no_route(route, &routes),
            None => format!(
                "no route has a certificate for {names} yet: name the route (`--route`, or route= in the request): one of {}",
                routes.join(", ")
            ),
        });
    }
    let mut words = format!(
        "{}: clients get the pushed certificate for {names} until the next reload",
        all_of(&changed)
    );
    for warning in pushed.warnings {
        tracing::warn!(warning, "certificate warning");
        words.push_str("; warning: ");
        words.push_str(&warning);
    }
    Ok((certificates, words))
}

/// Removes the pushed certificates for a name from one route, or from all routes.
fn withdraw(edition: &Edition, name: &str, route: Option<&str>) -> Result<Changed, String> {
    let mut certificates = edition.material.certificates.clone();
    let mut changed = Vec::new();
    let all = terminating(edition, &mut certificates);
    let routes: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    for (route_name, pems) in all {
        if route.is_some_and(|one| one != route_name) {
            continue;
        }
        let mut all = RouteCertificates::of(pems);
        if all.withdraw(name) > 0 {
            *pems = all.into_pems();
            changed.push(route_name);
        }
    }
    match (route, changed.is_empty()) {
        (Some(route), true) if !routes.iter().any(|name| name == route) => {
            Err(no_route(route, &routes))
        }
        (_, true) => Err(format!("no certificate for {name} was pushed")),
        _ => {
            let routes = all_of(&changed);
            Ok((
                certificates,
                format!("{routes}: clients no longer get the pushed certificate for {name}"),
            ))
        }
    }
}

/// Returns the routes as the subject of a message.
fn all_of(routes: &[String]) -> String {
    let word = if routes.len() == 1 { "route" } else { "routes" };
    format!("{word} {}", routes.join(", "))
}

fn no_route(name: &str, routes: &[String]) -> String {
    format!(
        "no route {name} with certificates; routes with certificates: {}",
        routes.join(", ")
    )
}

/// Returns the names of routes that terminate TLS, each with its certificates.
fn terminating<'a>(
    edition: &Edition,
    certificates: &'a mut Certificates,
) -> Vec<(String, &'a mut Vec<dormouse_handover::Pem>)> {
    let names = edition.config.route_names();
    let routes = edition.config.routes.iter().zip(names).zip(certificates);
    routes
        .filter(|((route, _), _)| !route.pass_through)
        .map(|((_, name), pems)| (name, pems))
        .collect()
}
