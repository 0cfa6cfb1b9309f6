//! Certificates and authorities from the SPIFFE agent. They are put to use without a reload.

use super::Supervisor;
use crate::material::workload::Workload;
use dormouse_reactor::process;

impl Supervisor {
    /// Starts or ends the process, and uses what it has received. Called once per turn.
    pub(super) fn attend_to_spiffe(&mut self) {
        let former = self.spiffe.attend(&self.serving.edition, &self.poller);
        self.history.ending.extend(former);
        if self.may_change()
            && let Some(workload) = self.spiffe.take_complete()
        {
            self.use_workload(workload);
        }
    }

    fn use_workload(&mut self, workload: Workload) {
        let edition = &self.serving.edition;
        if edition.material.workload == workload {
            return;
        }
        let certificates = workload.certificates().iter();
        let ids: Vec<String> = certificates.map(|pem| pem.name.clone()).collect();
        for missing in workload.missing(&edition.config) {
            tracing::warn!(
                missing,
                "the SPIFFE agent does not have what the configuration names"
            );
        }
        let material = edition.material.with_workload(&edition.config, workload);
        match self.apply_material(material) {
            Ok(()) => {
                self.recheck.begin();
                tracing::info!(
                    edition = self.serving.edition.number,
                    ids = ids.join(", "),
                    "certificates of the SPIFFE agent in use"
                );
            }
            Err(error) => tracing::error!(
                error,
                "certificates of the SPIFFE agent could not be applied; keeping the current ones"
            ),
        }
        process::return_heap();
    }
}
