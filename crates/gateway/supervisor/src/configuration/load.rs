//! Loading of a configuration with everything that it names. `serve`, `check` and a reload share it, so
//! that all three accept the same configurations.

use crate::configuration::certificate_watch::CertificateWatch;
use crate::configuration::examine;
use crate::configuration::occasion::Occasion;
use crate::configuration::source::Source;
use crate::material::findings::Findings;
use crate::material::{Changes, Former, Material};
use dormouse_config::{self as config, Config, Loaded, Machine, Mistakes, Place};
use dormouse_handover::Pem;
use std::cell::RefCell;

/// A valid configuration, with everything that it names.
pub struct Ready {
    /// The configuration, with the sizes and limits that follow from it on this machine.
    pub loaded: Loaded,
    pub(crate) material: Material,
    /// How the material differs from what served before.
    pub(crate) changes: Changes,
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
    load_after(source, occasion, &Former::none(), &|| true)
}

/// As [`load`], after another configuration, whose certificates (`former`) serve. Nothing is examined unless
/// `is_complete` returns `true`, which means that all names are resolved.
pub(crate) fn load_after(
    source: &Source,
    occasion: &Occasion<'_>,
    former: &Former<'_>,
    is_complete: &dyn Fn() -> bool,
) -> Result<Ready, Mistakes> {
    let machine = Machine::read();
    let found = RefCell::new(None);
    let examine = |config: &Config| {
        if !is_complete() {
            return Vec::new();
        }
        let mut findings = Findings::default();
        let watch = CertificateWatch::begin(config);
        let (material, changes) = Material::load(config, former, &mut findings);
        examine::examine(config, &material, occasion, &mut findings);
        // What does not fit even without certificates is reported at its own place.
        if config::plan_for(config, &machine).is_some()
            && let Err(why) = config::plan_with(config, &machine, material.bytes() as u64)
        {
            findings.error(Place::Program("memory"), why);
        }
        found.replace(Some((material, changes, watch)));
        findings.into_list()
    };
    let mut loaded = config::load_with(
        source.file.as_deref(),
        source.section,
        &source.flags,
        &machine,
        occasion.look_up,
        &examine,
    )?;
    let (material, changes, watch) = found.into_inner().unwrap_or_else(|| {
        let watch = CertificateWatch::begin(&loaded.config);
        (Material::default(), Changes::default(), watch)
    });
    if let Ok(plan) = config::plan_with(&loaded.config, &machine, material.bytes() as u64) {
        loaded.plan = plan;
    }
    Ok(Ready {
        loaded,
        material,
        changes,
        watch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::occasion::{Occupied, Purpose};
    use dormouse_config::Section;
    use dormouse_engine::Identity;
    use std::fs;

    #[test]
    fn a_directory_of_certificates_is_part_of_the_budget() {
        let folder = tempfile::tempdir().expect("a folder");
        let certificates = folder.path().join("certificates");
        fs::create_dir(&certificates).expect("a directory");
        for n in 0..500 {
            let (chain, key) = Identity::self_signed_pem(&format!("n{n}.example")).expect("made");
            let path = |kind| certificates.join(format!("n{n}.{kind}"));
            fs::write(path("pem"), chain).expect("written");
            fs::write(path("key"), key.as_bytes()).expect("written");
        }
        let load_with = |limits: &str| {
            let file = folder.path().join("dormouse.toml");
            let text = format!(
                "workers = 2\n{limits}\n[[route]]\nlisten = '127.0.0.1:5001'\nto = 'echo:'\n\
                 certificates = ['{}/']\n",
                certificates.display()
            );
            fs::write(&file, text).expect("written");
            let source = Source {
                file: Some(file),
                section: Section::Route,
                flags: Vec::new(),
            };
            let occasion = Occasion {
                purpose: Purpose::Check,
                look_up: &|_, _| Ok(Vec::new()),
                occupied: &|_| Occupied::default(),
            };
            load(&source, &occasion)
        };
        let ready = load_with("memory = '256 MiB'").unwrap_or_else(|found| panic!("{found}"));
        let costs = &ready.loaded.plan.costs;
        let certificates = costs.iter().find(|cost| cost.what == "certificates");
        let bytes = certificates.expect("a cost").bytes.0;
        assert_eq!(bytes, 22 * ready.material.bytes() as u64);
        let sum: u64 = costs.iter().map(|cost| cost.bytes.0).sum();
        assert!(sum <= 256 << 20 && bytes > 4 << 20, "{sum} {bytes}");
        // Without the certificates, this budget is enough.
        let needed = (sum - bytes).div_ceil(1 << 20);
        let plan = &ready.loaded.plan;
        let exact = format!(
            "memory = '{needed} MiB'\nmax_connections = {}\nmax_handshakes = {}\nbacklog = {}\n\
             pending_memory = '{}'\nkernel_memory = '{}'\nreceive_buffer = '{}'",
            plan.connections_max,
            plan.handshakes_max,
            plan.backlog,
            plan.pending_memory,
            plan.kernel_memory,
            plan.receive_buffer
        );
        let refused = load_with(&exact).err().expect("too little").to_string();
        assert!(refused.contains("memory = "), "{refused}");
        assert!(refused.contains("certificates  "), "{refused}");
    }
}
