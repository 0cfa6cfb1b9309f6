//! Timeouts that a route may have of its own.

use crate::mistakes::problem::ReadResult;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, OptionType};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A timeout of one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteTimeout {
    /// That of the whole program.
    Inherit,
    /// This one, or none.
    Own(Option<Duration>),
}

impl RouteTimeout {
    /// Returns the timeout of the route, where `program` is that of the whole program.
    pub fn or(self, program: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Inherit => program,
            Self::Own(own) => own,
        }
    }
}

impl OptionType for RouteTimeout {
    const KIND: Kind = Kind::new(
        "a duration, \"off\" or \"inherit\"",
        "\"30s\", \"off\" or \"inherit\"",
        "DURATION|off|inherit",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("inherit") => Ok(Self::Inherit),
            _ => Option::read(raw, context).map(Self::Own),
        }
    }

    fn measure(&self) -> Option<u64> {
        self.or(None).and_then(|own| own.measure())
    }
}

/// A value of one route that cannot be off. `None`: that of the whole program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited<T>(Option<T>);

impl<T> Inherited<T> {
    /// Returns the value of the route, where `program` is that of the whole program.
    pub fn or(self, program: T) -> T {
        self.0.unwrap_or(program)
    }
}

/// A type of values that a route may take over from the program.
pub(crate) trait Inherit: OptionType {
    /// Its kind, with `inherit`.
    const KIND_OR_INHERIT: Kind;
}

impl Inherit for Duration {
    const KIND_OR_INHERIT: Kind = Kind::new(
        "a duration or \"inherit\"",
        "\"30s\" or \"inherit\"",
        "DURATION|inherit",
    );
}

impl Inherit for u32 {
    const KIND_OR_INHERIT: Kind = Kind::new(
        "a whole number or \"inherit\"",
        "100 or \"inherit\"",
        "N|inherit",
    );
}

impl<T: Inherit> OptionType for Inherited<T> {
    const KIND: Kind = T::KIND_OR_INHERIT;

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("inherit") => Ok(Self(None)),
            _ => T::read(raw, context).map(|own| Self(Some(own))),
        }
    }

    fn measure(&self) -> Option<u64> {
        self.0.as_ref().and_then(T::measure)
    }
}

#[cfg(test)]
mod tests {
    use crate::Lifetime;
    use crate::tests::load_text;

    #[test]
    fn a_route_may_have_timeouts_of_its_own() {
        let route = "listen = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";
        let loaded = load_text(&format!(
            "idle_timeout = '10m'\npartial_record_timeout = '20s'\n\
             [[route]]\nname = 'usual'\n{route}server_names = 'a.example'\n\
             [[route]]\nname = 'quiet'\nroute_idle_timeout = 'off'\nroute_total_timeout = '1d'\nroute_partial_record_timeout = '30s'\nroute_backend_connect_timeout = '1s'\n{route}server_names = 'b.example'\n\
             [[originate]]\nlisten = '127.0.0.1:1'\nto = '192.0.2.7:443'\nroute_idle_timeout = '30s'\nroute_total_timeout = 'inherit'\nroute_backend_connect_timeout = '2s'\n"
        ));
        let config = loaded.expect("valid").config;
        let lifetime = |idle_ms, total_ms, connect_ms, record_ms| Lifetime {
            idle_ms,
            total_ms,
            connect_ms,
            record_ms,
            rest_after_ms: None,
            stall_ms: None,
        };
        assert_eq!(
            config.lifetimes(),
            [
                lifetime(Some(600_000), None, 5_000, 20_000),
                lifetime(None, Some(86_400_000), 1_000, 30_000),
                lifetime(Some(30_000), None, 2_000, 20_000)
            ]
        );
        assert_eq!(
            config.lifetime_without_route(),
            lifetime(Some(600_000), None, 5_000, 20_000)
        );
        let off = load_text(&format!(
            "[[route]]\n{route}route_partial_record_timeout = 'off'\n"
        ));
        assert!(off.is_err(), "a partial record cannot wait for ever");
    }
}
