//! What a step on a connection uses besides the connection.

use super::route_choice::Challenge;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, HandshakeLimits, PreparedAgreement};
use dormouse_routes::route::Direction;

/// Where a connection goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// To the backends of the route with this number.
    Route(u16),
    /// Nowhere: its handshake answers the open challenge with this number.
    Challenge(u64),
}

/// What a step on a connection uses besides the connection.
pub(crate) struct Turn<'a, I> {
    /// The key agreement that was computed for the connection.
    pub(crate) agreement: Option<Box<PreparedAgreement>>,
    pub(crate) settings: &'a Settings,
    pub(crate) work: &'a mut Workspace<I>,
    /// The open challenges.
    pub(crate) challenges: &'a [Challenge],
    /// Whether the connection had to wait for its turn.
    pub(crate) waited: bool,
}

impl<I: Io> Turn<'_, I> {
    /// Creates the handshake of a route, or that of the challenge. `None`: a reload has removed the route, or changed
    /// what it does.
    pub(super) fn start(&mut self, goal: Option<Goal>) -> Option<Handshake> {
        let limits = HandshakeLimits {
            bytes_max: self.settings.limits.handshake_bytes_max,
        };
        let number = match goal.expect("a route is chosen before its handshake begins") {
            Goal::Challenge(number) => {
                let open = self.challenges.iter().find(|open| open.number == number);
                return Some(open?.handshake(limits));
            }
            Goal::Route(number) => number,
        };
        match &self.settings.route(number)?.direction {
            Direction::Terminate { context, .. } => {
                let mut handshake = Handshake::server(context.as_ref()?, limits);
                if let Some(agreement) = self.agreement.take() {
                    handshake.use_agreement(agreement);
                }
                Some(handshake)
            }
            Direction::PassThrough(_) | Direction::Originate(_) | Direction::Removed => None,
        }
    }
}
