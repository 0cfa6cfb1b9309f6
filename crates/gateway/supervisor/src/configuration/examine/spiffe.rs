//! What can be known of the SPIFFE agent without asking it: it may start later, and decides by the process that asks.

use crate::configuration::occasion::{Purpose, of_privilege};
use crate::helper_process::privileges_of;
use crate::material::findings::Findings;
use dormouse_config::{Config, Place, SpiffeAgent};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;

/// Examines the user who asks, and the agent's socket.
pub(crate) fn examine(config: &Config, purpose: Purpose, findings: &mut Findings) {
    let Some(agent) = config.spiffe_agent() else {
        return;
    };
    if let Err(why) = privileges_of(config.process.spiffe_user.as_deref(), config) {
        findings.refusal(Place::Program("spiffe_user"), of_privilege(purpose), why);
    }
    if let Some(why) = absence(agent) {
        let what = format!(
            "{agent}: no agent there now ({why}); until its first answer, handshakes that need its certificates or authorities fail"
        );
        findings.warning(Place::Program("spiffe_agent"), what);
    }
}

fn absence(agent: &SpiffeAgent) -> Option<String> {
    match fs::metadata(&agent.path) {
        Ok(found) if found.file_type().is_socket() => None,
        Ok(_) => Some("not a socket".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}
