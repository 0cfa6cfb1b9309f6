//! Loading of a configuration with everything that it names. `serve`, `check` and a reload share it, so
//! that all three accept the same configurations.

use crate::certificate_watch::CertificateWatch;
use crate::examine;
use crate::findings::Findings;
use crate::material::Material;
use crate::occasion::Occasion;
use crate::source::Source;
use dormouse_config::{self as config, Config, Loaded, Machine, Mistakes};
use dormouse_handover::Pem;
use std::cell::RefCell;

/// A valid configuration, with everything that it names.
pub struct Ready {
    /// The configuration, with the sizes and limits that follow from it on this machine.
    pub loaded: Loaded,
    pub(crate) material: Material,
    /// The watch on the files of the material, from before they were read: it notices a change that came after.
    pub(crate) watch: CertificateWatch,
}

impl Ready {
    /// The certificates of each route, in the order of the configuration.
    pub fn certificates(&self) -> &[Vec<Pem>] {
        &self.material.certificates
    }
}

/// Loads the configuration and everything that it names. The error lists all mistakes with their
/// places.
///
/// # Errors
/// At least one mistake prevents the start.
pub fn load(source: &Source, occasion: &Occasion<'_>) -> Result<Ready, Mistakes> {
    load_after(source, occasion, &[], &|| true)
}

/// As [`load`], after another configuration: self-signed certificates and OCSP responses among its
/// certificates (`former`) are reused. Nothing is examined unless `is_complete` returns `true`, which
/// means that all names are resolved.
pub(crate) fn load_after(
    source: &Source,
    occasion: &Occasion<'_>,
    former: &[Vec<Pem>],
    is_complete: &dyn Fn() -> bool,
) -> Result<Ready, Mistakes> {
    let found = RefCell::new(None);
    let examine = |config: &Config| {
        if !is_complete() {
            return Vec::new();
        }
        let mut findings = Findings::default();
        let watch = CertificateWatch::begin(config);
        let material = Material::load(config, former, &mut findings);
        examine::examine(config, &material, occasion, &mut findings);
        found.replace(Some((material, watch)));
        findings.into_list()
    };
    let loaded = config::load_with(
        source.file.as_deref(),
        source.section,
        &source.flags,
        &Machine::read(),
        occasion.look_up,
        &examine,
    )?;
    let (material, watch) = found.into_inner().unwrap_or_else(|| {
        let nothing = Material {
            certificates: Vec::new(),
            client_trust: Vec::new(),
            origins: Vec::new(),
            backend_tls: Vec::new(),
        };
        (nothing, CertificateWatch::begin(&loaded.config))
    });
    Ok(Ready {
        loaded,
        material,
        watch,
    })
}
