//! Runs one case, for callgrind to count: `counted CASE`. Without a case it lists all cases.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use dormouse_ci_bench::cases::{ALL, Case};

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for case in ALL {
            println!("{}", case.name);
        }
        return ExitCode::SUCCESS;
    };
    let Some(case) = Case::named(&name) else {
        eprintln!("counted: unknown case {name}; `counted` without a case lists all cases");
        return ExitCode::from(2);
    };
    case.run();
    ExitCode::SUCCESS
}
