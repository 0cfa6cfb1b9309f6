//! Options as they used to be written: they go on working, and a warning says what to write now.

use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::values::admin::Admin;
use crate::values::metrics_address::MetricsAddress;

/// Moves former options to where they are now.
pub(crate) fn take_over(
    config: &mut Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    admin_address(config, locations, mistakes);
}

/// `admin` was one address for orders and metrics. A TCP address is `metrics` now, and orders have the
/// usual socket.
fn admin_address(
    config: &mut Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let process = &mut config.process;
    let Admin::Loopback(address) = process.admin else {
        return;
    };
    let location = locations.option("admin");
    process.admin = Admin::Auto;
    if process.metrics.is_some() {
        let problem = Problem::new("`admin` is a path, and a TCP address is `metrics`");
        let help = "leave admin out, or give it a path: admin = \"/run/dormouse/admin.sock\"";
        return mistakes.error(&location, problem.help(help));
    }
    process.metrics = Some(MetricsAddress(address));
    mistakes.warning(
        &location,
        Problem::new(format!("`admin` is a path; metrics and the status page are answered on {address} all the same"))
            .help(format!("write metrics = \"{address}\"; without admin, `dormouse reload` and others use the usual socket")),
    );
}
