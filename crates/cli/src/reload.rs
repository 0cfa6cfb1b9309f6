//! `dormouse reload`: has a running `serve` read its configuration again.

use crate::admin::{self, AdminAddress, AdminArgs, Exit};
use crate::connections::{Counted, FilterArgs};
use crate::terminal;

pub(crate) fn run(args: &AdminArgs) -> Exit {
    let address = AdminAddress::find(&args.instance)?;
    let result = address.order("/reload").map_err(admin::failed)?;
    let status = admin::show(&result, args.json);
    // The reload is done, whether or not this can be counted; an error is printed.
    if result.done
        && !args.json
        && let Ok(counted) = FilterArgs::refused_now().count(&address, None)
    {
        let Counted { matched, unknown } = counted;
        if matched > 0 {
            terminal::line(format_args!(
                "established connections whose clients would be refused now: {matched} (dormouse connections --refused)"
            ));
        }
        if unknown > 0 {
            terminal::line(format_args!(
                "established connections without an entry of the connection log, of which this is not known: {unknown}"
            ));
        }
    }
    Ok(status)
}
