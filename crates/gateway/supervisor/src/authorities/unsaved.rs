//! What could not be saved: the account, and certificates that are in use. On a full disk they are tried again at growing
//! intervals, and at a reload.

use super::retry::backoff_ms;
use crate::configuration::edition::Edition;
use crate::material::acme;
use dormouse_helpers::errand::Account;
use std::collections::BTreeSet;

/// What waits for a disk.
#[derive(Default)]
pub(super) struct Unsaved {
    account: Option<Account>,
    names: BTreeSet<String>,
    failures: u32,
    due_ms: u64,
}

impl Unsaved {
    /// Notes the account, until another attempt succeeds.
    pub(super) fn add_account(&mut self, account: Account, now_ms: u64) {
        self.account = Some(account);
        self.put_off(now_ms);
    }

    /// Notes the certificate for a name.
    pub(super) fn add_name(&mut self, name: &str, now_ms: u64) {
        self.names.insert(name.to_owned());
        self.put_off(now_ms);
    }

    /// The account at this server. Without it, each order would create another one.
    pub(super) fn account(&self, directory: &str) -> Option<&Account> {
        let account = self.account.as_ref();
        account.filter(|account| account.directory == directory)
    }

    /// The first attempt follows soon, also after another one for something else.
    fn put_off(&mut self, now_ms: u64) {
        self.due_ms = now_ms + backoff_ms(self.failures);
    }

    fn is_empty(&self) -> bool {
        self.account.is_none() && self.names.is_empty()
    }

    /// Time of the next attempt.
    pub(super) fn due_ms(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.due_ms)
    }

    /// Tries at once, because a reload may have removed the cause.
    pub(super) fn retry_now(&mut self, now_ms: u64) {
        self.failures = 0;
        self.due_ms = now_ms;
    }

    /// Tries to save everything.
    pub(super) fn save(&mut self, edition: &Edition, now_ms: u64) {
        let config = &edition.config;
        self.account.take_if(|account| {
            // Another server is configured by now, which has an account of its own.
            let is_saved = account.directory != config.acme.acme_server
                || acme::keep_account(config, account).is_ok();
            if is_saved {
                tracing::info!(account = account.id, "ACME account saved");
            }
            is_saved
        });
        self.names.retain(|name| {
            let file = acme::file_of(config, name).display().to_string();
            let mut pems = edition.material.certificates.iter().flatten();
            // A name that is no longer configured has no certificate.
            let Some(pem) = pems.find(|pem| pem.name == file) else {
                return false;
            };
            let is_saved = acme::keep(config, name, pem).is_ok();
            if is_saved {
                tracing::info!(name, "ACME certificate saved");
            }
            !is_saved
        });
        self.failures = match self.is_empty() {
            true => 0,
            false => self.failures + 1,
        };
        self.put_off(now_ms);
    }
}
