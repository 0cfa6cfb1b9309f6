//! When a certificate from an ACME server is renewed.

use dormouse_helpers::errand::RenewalWindow;

/// Validity of a certificate, and the hash of its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Validity {
    pub(super) from_s: u64,
    pub(super) until_s: u64,
    pub(super) digest: u64,
}

impl Validity {
    /// When to renew: within the server's window, else after two thirds of the lifetime or a little
    /// earlier; in any case before the last tenth. `share`, a fraction of 2^64, differs between machines,
    /// so that a fleet does not renew all at once.
    pub(super) fn renew_at_s(self, advised: Option<RenewalWindow>, share: u64) -> u64 {
        let part = |whole_s: u64| ((u128::from(whole_s) * u128::from(share)) >> 64) as u64;
        let life_s = self.until_s.saturating_sub(self.from_s);
        let latest_s = self.until_s.saturating_sub(life_s / 10);
        match advised {
            Some(window) => {
                let from_s = u64::try_from(window.from_s).unwrap_or(0);
                let until_s = u64::try_from(window.until_s).unwrap_or(0);
                let at_s = from_s.saturating_add(part(until_s.saturating_sub(from_s)));
                at_s.min(latest_s)
            }
            None => {
                let third_s = life_s / 3;
                self.until_s.saturating_sub(third_s + part(third_s / 10))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;
    const LIFE: Validity = Validity {
        from_s: 1000 * DAY_S,
        until_s: 1090 * DAY_S,
        digest: 0,
    };

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_lifetime() {
        assert_eq!(LIFE.renew_at_s(None, 0), 1060 * DAY_S);
        let soonest_s = LIFE.renew_at_s(None, u64::MAX);
        assert!((1057 * DAY_S..1057 * DAY_S + 60).contains(&soonest_s));
    }

    #[test]
    fn a_certificate_is_renewed_in_the_servers_window_but_never_too_late() {
        let window = |from_day: i64, until_day: i64| {
            let day_s = DAY_S as i64;
            Some(RenewalWindow {
                from_s: from_day * day_s,
                until_s: until_day * day_s,
                ask_again_s: 0,
            })
        };
        assert_eq!(LIFE.renew_at_s(window(1050, 1052), 1 << 63), 1051 * DAY_S);
        assert_eq!(LIFE.renew_at_s(window(-5, 3), 0), 0, "at once");
        assert_eq!(LIFE.renew_at_s(window(2000, 2001), 0), 1081 * DAY_S);
        assert_eq!(
            LIFE.renew_at_s(window(7, -7), 9),
            7 * DAY_S,
            "reversed window"
        );
    }
}
