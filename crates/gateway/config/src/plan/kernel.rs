//! Limits of the kernel for all processes together, which are not seen before they are reached.

use crate::config::Config;
use crate::mistakes::problem::Problem;
use crate::plan::machine::Machine;
use crate::plan::sizing::{self, Plan};
use crate::values::quantities::Count;
use crate::values::units::show_number;

/// Returns a warning for each limit of the kernel that is lower than `max_connections`, if that is a number. `auto` asks
/// for no number of connections.
pub(crate) fn low_limits(config: &Config, plan: &Plan, machine: &Machine) -> Vec<Problem> {
    let Count::Exactly(_) = config.limits.max_connections else {
        return Vec::new();
    };
    let each = sizing::descriptors_per_connection(config);
    let connections = plan.awake_max;
    let sockets = u64::from(connections) * each;
    let limits = [
        (
            "epoll watches, and all processes of a user together may have",
            machine.watches_max,
            "fs.epoll.max_user_watches",
        ),
        (
            "open files, and all processes of the machine together may have",
            machine.files_max,
            "fs.file-max",
        ),
    ];
    let low = limits.into_iter().filter(|(_, max, _)| *max < sockets);
    low.map(|(what, max, name)| {
        let connections = show_number(connections.into());
        // The machine has other processes.
        let enough = sockets + sockets / 4;
        Problem::new(format!(
            "{connections} connections need {} {what} {} here",
            show_number(sockets),
            show_number(max)
        ))
        .help(format!("raise the kernel's limit: sysctl {name}={enough}"))
    })
    .collect()
}
