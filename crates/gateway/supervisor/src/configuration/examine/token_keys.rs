//! The trial of keys in tokens, before they serve: each signs once, in a process as it will sign later, and the signature
//! must be of the key in the certificate.

use crate::configuration::occasion::{Purpose, of_privilege};
use crate::helper_process::HelperProcess;
use crate::material::Material;
use crate::material::findings::Findings;
use crate::signer::{access, privileges};
use dormouse_config::{Config, Place, Severity};
use dormouse_engine::{Identity, SignatureRequest};
use dormouse_handover::Pem;
use dormouse_handover::message;
use dormouse_handover::signing::SignRequest;
use dormouse_helpers::signer::{self, SignOrder, SignReport, SignerArguments};
use dormouse_reactor::OnExec;
use dormouse_reactor::poller::{Events, Poller};
use dormouse_reactor::process::{self, Wait};
use std::io;

/// Maximum time of all trials together. A reload waits for it.
const TRIAL_MAX_MS: u64 = 5_000;

/// Tries each key in a token with the certificate that it is for.
pub(crate) fn examine(
    config: &Config,
    material: &Material,
    purpose: Purpose,
    findings: &mut Findings,
) {
    if config.token_keys().is_empty() {
        return;
    }
    if let Err(why) = privileges(config) {
        return findings.refusal(Place::Program("pkcs11_user"), of_privilege(purpose), why);
    }
    let trials = trials(material);
    let mut answers = match answers(config, &trials) {
        Ok(answers) => answers,
        Err(why) => {
            let place = trials.first().map_or(Place::Whole, |trial| trial.place);
            return findings.error(place, why);
        }
    };
    for (trial, answer) in trials.iter().zip(answers.drain(..)) {
        let key = &trial.request.key;
        let why = match answer {
            Some(Ok(signature)) if trial.identity.accepts_trial(&signature) => continue,
            Some(Ok(_)) => {
                let certificate = trial.certificate;
                let what = format!("{key}: is not the key of the certificate {certificate}");
                findings.error(trial.place, what);
                continue;
            }
            Some(Err(why)) => format!("{key}: {why}"),
            None => format!(
                "{key}: the token has not signed within {} s",
                TRIAL_MAX_MS / 1000
            ),
        };
        // Another user than the one who serves may be unable to use the token.
        let severity = match process::user_id() {
            0 => Severity::Error,
            _ => of_privilege(purpose),
        };
        findings.refusal(trial.place, severity, why);
    }
}

struct Trial<'a> {
    place: Place,
    certificate: &'a str,
    identity: &'a Identity,
    request: SignatureRequest,
}

fn trials(material: &Material) -> Vec<Trial<'_>> {
    let of_route = |route| Place::of_route(route, "certificates");
    let routes = material.certificates.iter().enumerate();
    let routes = routes.flat_map(|(n, pems)| pems.iter().map(move |pem| (of_route(n), pem)));
    let own = material
        .origins
        .iter()
        .enumerate()
        .filter_map(|(n, origin)| {
            let place = Place::of_origination(n, "certificates");
            Some((place, origin.identity.as_ref()?))
        });
    routes.chain(own).filter_map(trial).collect()
}

fn trial((place, pem): (Place, &Pem)) -> Option<Trial<'_>> {
    let identity = pem.identity().ok()?;
    Some(Trial {
        place,
        certificate: &pem.name,
        identity,
        request: identity.trial_request()?,
    })
}

type Answer = Option<Result<Vec<u8>, String>>;

/// The answers to the trials, in their order.
fn answers(config: &Config, trials: &[Trial<'_>]) -> Result<Vec<Answer>, String> {
    let keys = access(&config.token_keys())?;
    let words = |error: io::Error| format!("the signer cannot be started: {error}");
    let privileges = privileges(config)?;
    let poller = Poller::create(OnExec::Close).map_err(words)?;
    let place = (&poller, 0);
    let process =
        HelperProcess::start(signer::NAME, &privileges, Vec::new(), place, |_, theirs| {
            SignerArguments {
                channel: theirs.0,
                keys,
            }
        });
    let process = process.map_err(words)?;
    let mut answers = vec![None; trials.len()];
    let mut events = Events::with_capacity(1);
    let until_ms = process::monotonic_ms() + TRIAL_MAX_MS;
    for (number, trial) in trials.iter().enumerate() {
        let SignatureRequest {
            key,
            scheme,
            digest,
        } = &trial.request;
        let order = SignOrder {
            number: number as u64,
            request: SignRequest {
                key: key.to_string(),
                scheme: scheme.code(),
                digest: digest.clone(),
            },
        };
        // There is room: one request after the other.
        if message::send(process.channel, &order).is_err() {
            break;
        }
        let answer = loop {
            match message::receive::<SignReport>(process.channel) {
                Ok(Some(report)) => break Some(report.signature),
                Ok(None) => {}
                Err(error) => break Some(Err(format!("the signer has ended: {error}"))),
            }
            let left_ms = until_ms.saturating_sub(process::monotonic_ms());
            if left_ms == 0 || poller.wait(&mut events, Some(left_ms)).is_err() {
                break None;
            }
        };
        let is_late = answer.is_none();
        answers[number] = answer;
        if is_late {
            break;
        }
    }
    let pid = process.kill(&poller);
    let _ = process::wait(Wait::For(pid));
    Ok(answers)
}
