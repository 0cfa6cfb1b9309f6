//! Tests with real processes, started, killed and replaced from a single-threaded process.

mod processes {
    pub(crate) mod keeper;
    mod lifecycle;
    mod survival;

    use dormouse_reactor::process::{self, Pid};

    /// Starts a child that shares this process's file table, without a sandbox.
    fn share_table(
        name: &str,
        work: impl FnOnce() -> i32 + Send + 'static,
    ) -> std::io::Result<Pid> {
        process::share_table(name, || Ok(()), |_| work())
    }

    pub(crate) const TESTS: &[(&str, fn())] = &[
        (
            "the_end_of_a_child_is_reported",
            lifecycle::the_end_of_a_child_is_reported,
        ),
        (
            "a_failed_exec_is_reported",
            lifecycle::a_failed_exec_is_reported,
        ),
        ("descriptors_are_chosen", lifecycle::descriptors_are_chosen),
        ("an_open_file_is_run", lifecycle::an_open_file_is_run),
        ("the_table_is_shared", lifecycle::the_table_is_shared),
        (
            "a_worker_has_correct_thread_ids",
            lifecycle::a_worker_has_correct_thread_ids,
        ),
        ("signals_are_read", lifecycle::signals_are_read),
        (
            "the_sender_of_a_signal_is_known",
            lifecycle::the_sender_of_a_signal_is_known,
        ),
        (
            "the_end_of_any_process_is_seen",
            lifecycle::the_end_of_any_process_is_seen,
        ),
        ("a_sleeper_is_woken", lifecycle::a_sleeper_is_woken),
        ("secrets_are_not_dumped", lifecycle::secrets_are_not_dumped),
        (
            "an_exec_keeps_the_process",
            lifecycle::an_exec_keeps_the_process,
        ),
        ("killed_while_busy", survival::killed_while_busy),
        ("killed_anywhere", survival::killed_anywhere),
        ("killed_while_counting", survival::killed_while_counting),
        (
            "connections_outlive_the_worker",
            keeper::connections_outlive_the_worker,
        ),
        (
            "connections_outlive_the_keepers_exec",
            keeper::connections_outlive_the_keepers_exec,
        ),
        // Last, because it starts a thread that stays.
        ("threads_forbid_sharing", lifecycle::threads_forbid_sharing),
    ];

    /// Runs the role in which a test starts this program.
    pub(crate) fn child(role: &str, arguments: &[String]) -> i32 {
        match role {
            "--keeper" => keeper::keeper(arguments),
            "--descriptors" => lifecycle::report_descriptors(arguments),
            "--successor" => lifecycle::successor(arguments),
            other => panic!("unknown role: {other}"),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mark, role, rest @ ..] = arguments.as_slice()
        && mark == "--child"
    {
        std::process::exit(processes::child(role, rest));
    }
    let chosen = chosen(&arguments);
    for (name, test) in &chosen {
        // A failing test panics; its name is the last one printed.
        print!("test {name} ... ");
        test();
        println!("ok");
    }
    println!("\ntest result: ok. {} passed", chosen.len());
}

/// The tests that the arguments choose, with their full names. Arguments mean what they mean for libtest, because
/// `cargo test` hands the same ones to every test program: words are parts of names, one of which a test must have;
/// `--skip` takes a part that it must not have.
fn chosen(arguments: &[String]) -> Vec<(String, fn())> {
    let (mut filters, mut skipped) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument.split_once('=').unwrap_or((argument, "")) {
            ("--skip", "") => skipped.extend(arguments.next()),
            ("--skip", part) => skipped.push(part),
            ("--test-threads" | "--format" | "--color" | "--logfile" | "-Z", "") => {
                arguments.next();
            }
            // None of these tests is ignored.
            ("--ignored", _) => return Vec::new(),
            _ if argument.starts_with('-') => {}
            _ => filters.push(argument),
        }
    }
    let has = |name: &str, parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let tests = processes::TESTS
        .iter()
        .map(|(name, test)| (format!("processes::{name}"), *test));
    let chosen: Vec<_> = tests
        .filter(|(name, _)| filters.is_empty() || has(name, &filters))
        .filter(|(name, _)| !has(name, &skipped))
        .collect();
    assert!(!filters.is_empty() || !chosen.is_empty(), "no test is left");
    chosen
}
