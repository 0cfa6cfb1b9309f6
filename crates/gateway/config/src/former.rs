//! Former notations of options: they still work, and a warning says what to write now.

use crate::config::Config;
use crate::input::locations::Locations;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::values::admin::Admin;
use crate::values::metrics_address::MetricsAddress;

/// Moves former options to their new place.
pub(crate) fn take_over(
    config: &mut Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    admin_address(config, locations, mistakes);
}

/// `admin` was one address for commands and metrics. A TCP address belongs in `metrics` now, and
/// commands use the default socket.
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
        let problem = Problem::new("`admin` takes a path; a TCP address belongs in `metrics`");
        let help = "remove admin, or give it a path: admin = \"/run/dormouse/admin.sock\"";
        return mistakes.error(&location, problem.help(help));
    }
    process.metrics = Some(MetricsAddress(address));
    mistakes.warning(
        &location,
        Problem::new(format!("`admin` takes a path; {address} is used for `metrics`"))
            .help(format!("write metrics = \"{address}\"; without admin, `dormouse reload` and the other commands use the default socket")),
    );
}
