//! What a step on a connection uses besides the connection.

use super::route_choice::Challenge;
use crate::io::Io;
use crate::settings::Settings;
use crate::workspace::Workspace;
use dormouse_engine::{Handshake, HandshakeLimits};
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
    pub(super) fn start(&self, goal: Option<Goal>) -> Option<Handshake> {
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
                Some(Handshake::server(context.as_ref()?, limits))
            }
            Direction::PassThrough(_) | Direction::Originate(_) | Direction::Removed => None,
        }
    }
}
