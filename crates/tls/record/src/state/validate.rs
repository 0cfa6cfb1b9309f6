//! Checks that a state must pass before a process continues from it.

use super::*;

impl State {
    /// Checks a state that another process left: version, codes, flags, ranges, and that unused bytes are zero.
    pub fn validate(&self) -> Result<(), Corrupt> {
        if self.as_bytes().iter().all(|&byte| byte == 0) {
            return Err(Corrupt::Empty);
        }
        if self.layout != LAYOUT_VERSION {
            return Err(Corrupt::Layout(self.layout));
        }
        let version = Version::from_code(self.version).ok_or(Corrupt::Version(self.version))?;
        let suite = Suite::from_code(self.suite).ok_or(Corrupt::Suite(self.suite))?;
        Role::from_code(self.role).ok_or(Corrupt::Role(self.role))?;
        self.validate_flags(version)?;
        self.validate_ranges(suite)?;
        validate_secret(version, suite, &self.read_secret, version == Version::Tls12)?;
        validate_secret(version, suite, &self.write_secret, self.counts_units())
    }

    fn validate_flags(&self, version: Version) -> Result<(), Corrupt> {
        if self.has(REPLACING) {
            return Err(Corrupt::Replacing);
        }
        let only_tls13 = KEY_UPDATE_REQUESTED | KEY_UPDATE_ASKED;
        let only_tls12 = HALF_WARNING | HALF_FATAL;
        let foreign = match version {
            Version::Tls12 => only_tls13,
            Version::Tls13 => only_tls12,
        };
        if self.flags & foreign != 0 || self.flags & only_tls12 == only_tls12 {
            return Err(Corrupt::Flags(self.flags));
        }
        Ok(())
    }

    fn validate_ranges(&self, suite: Suite) -> Result<(), Corrupt> {
        // Every record uses at least one unit, so a key never seals more records than units.
        let records_max = match self.counts_units() {
            true => u64::from(self.units_used()),
            false => record_limit(suite),
        };
        if self.write_sequence > records_max {
            return Err(Corrupt::Sequence);
        }
        let counters_fit = self.empty_records <= EMPTY_RECORDS_MAX
            && self.key_updates <= KEY_UPDATES_MAX
            && self.warnings <= WARNINGS_MAX
            && self.reserved == 0;
        if !counters_fit {
            return Err(Corrupt::Counters);
        }
        // Only a complete header has a remaining body, and a message with none remaining is cleared.
        let have = usize::from(self.message_have);
        let message_fits = have <= self.message_header.len()
            && (have == self.message_header.len()) == (self.message_left > 0)
            && self.message_header[have.min(4)..]
                .iter()
                .all(|&byte| byte == 0);
        if !message_fits {
            return Err(Corrupt::Message);
        }
        Ok(())
    }
}

fn validate_secret(
    version: Version,
    suite: Suite,
    secret: &[u8; SECRET_MAX],
    uses_the_rest: bool,
) -> Result<(), Corrupt> {
    let used = |at: usize| match version {
        _ if AFTER_IV.contains(&at) && uses_the_rest => true,
        Version::Tls13 => at < suite.secret_len(),
        Version::Tls12 => at < suite.key_len() || (TLS12_IV_AT..TLS12_IV_AT + IV_LEN).contains(&at),
    };
    let beside = secret
        .iter()
        .enumerate()
        .any(|(at, &byte)| byte != 0 && !used(at));
    let nothing = secret[..TLS12_IV_AT].iter().all(|&byte| byte == 0);
    if beside || nothing {
        return Err(Corrupt::Secret);
    }
    Ok(())
}
