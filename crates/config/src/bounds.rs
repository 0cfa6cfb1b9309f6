//! Bounds which belong together: how fast bytes may pass, and how long names hold.

use super::Config;
use super::mistake::Collector;
use super::placed::Placed;
use super::raw::Wrong;
use super::units::show_duration;

/// Reports what does not fit.
pub(super) fn check(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let limits = &config.limits;
    if limits.burst_per_client.given().is_some()
        && limits.bytes_per_client.is_none()
        && placed.sound(&["bytes_per_client", "burst_per_client"])
    {
        mistakes.warning(
            &placed.first_of(&["burst_per_client"]),
            Wrong::new("`burst_per_client` is of no use: clients have no limit for bytes")
                .help("add bytes_per_client = \"10 MiB\", in bytes per second"),
        );
    }
    let sound = placed.sound(&["bytes_per_client", "max_bytes_per_second"]);
    let both = limits.bytes_per_client.zip(limits.max_bytes_per_second);
    if let Some((each, all)) = both.filter(|(each, all)| sound && each > all) {
        mistakes.warning(
            &placed.first_of(&["bytes_per_client", "max_bytes_per_second"]),
            Wrong::new(format!(
                "one client may have more ({each}) than all together ({all})"
            ))
            .help("lower bytes_per_client, so that one client leaves something for others"),
        );
    }
    let process = &config.process;
    let (least, most) = (process.resolve_ttl_min, process.resolve_ttl_max);
    if placed.sound(&["resolve_ttl_min", "resolve_ttl_max"]) && least > most {
        mistakes.error(
            &placed.first_of(&["resolve_ttl_min", "resolve_ttl_max"]),
            Wrong::new(format!(
                "the least lifetime of a name ({}) is more than the greatest ({})",
                show_duration(least),
                show_duration(most)
            )),
        );
    }
}
