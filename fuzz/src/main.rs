//! Runs one target: `FUZZ_TARGET=NAME` with the arguments of libFuzzer, or `dormouse-fuzz NAME SECONDS`.
#![forbid(unsafe_code)]
#![cfg_attr(feature = "libfuzzer", no_main)]

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    use std::sync::OnceLock;
    static TARGET: OnceLock<dormouse_fuzz::Target> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        dormouse_fuzz::Target::named(&name).expect("FUZZ_TARGET names no target")
    });
    (target.run)(data);
});

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::process::ExitCode {
    use std::time::Duration;
    let mut words = std::env::args().skip(1);
    let target = words
        .next()
        .and_then(|name| dormouse_fuzz::Target::named(&name));
    let seconds = words.next().and_then(|seconds| seconds.parse().ok());
    let (Some(target), Some(seconds)) = (target, seconds) else {
        eprintln!("usage: dormouse-fuzz TARGET SECONDS; the targets are:");
        for target in dormouse_fuzz::TARGETS {
            eprintln!("  {}", target.name);
        }
        return std::process::ExitCode::from(2);
    };
    let seeds = target.seeds().unwrap_or_default();
    let runs = dormouse_fuzz::mutate::run(target, &seeds, Duration::from_secs(seconds));
    println!("{}: {runs} executions", target.name);
    std::process::ExitCode::SUCCESS
}
