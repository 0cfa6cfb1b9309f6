//! Any text is read or refused, and the locations of its mistakes are inside it.

use proptest::prelude::*;

use super::*;

/// Pieces that files are made of: they reach more code than noise does.
fn piece() -> impl Strategy<Value = String> {
    let mut words: Vec<&str> = Config::option_names();
    words.extend(Route::OPTIONS.iter().map(|spec| spec.name));
    words.extend([
        "[[route]]",
        "[route]",
        "\n",
        "\n",
        "\n",
        " = ",
        " = ",
        " = ",
        "'",
        "\"",
        "\"\"\"",
        "[",
        "]",
        "{",
        "}",
        ",",
        ".",
        "#",
        "\r\n",
        "\t",
        "1",
        "-1",
        "1.3",
        "true",
        "'auto'",
        "'off'",
        "'10s'",
        "'64 MiB'",
        "':8443'",
        "'[::1]:1'",
        "'echo:'",
        "'unix:x'",
        "'localhost:1'",
        "{ cert = 'a', key = 'b' }",
        "1979-05-27",
        "ä",
        "\u{1f401}",
        "\0",
        "\u{feff}",
    ]);
    let owned: Vec<String> = words.into_iter().map(str::to_owned).collect();
    prop_oneof![8 => proptest::sample::select(owned), 1 => any::<String>()]
}

fn check(text: &str) {
    let answer = match load_text(text) {
        Ok(loaded) => loaded.warnings,
        Err(mistakes) => {
            assert!(mistakes.errors() > 0, "refused without a reason");
            mistakes
        }
    };
    let lines: Vec<&str> = text.split('\n').collect();
    for mistake in &answer.list {
        if let Source::Line {
            line, span, text, ..
        } = &mistake.source
        {
            assert!(
                lines[line - 1].starts_with(text.as_str()),
                "line {line} is another"
            );
            assert!(text.get(span.clone()).is_some(), "{span:?} of `{text}`");
        }
    }
    answer.render(true);
}

proptest! {
    #[test]
    fn noise_does_not_panic(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn nearly_valid_files_do_not_panic(pieces in proptest::collection::vec(piece(), 0..60)) {
        check(&pieces.concat());
    }

    #[test]
    fn any_value_of_any_option_does_not_panic(
        option in 0..Config::option_names().len() + Route::OPTIONS.len(),
        value in any::<String>(),
    ) {
        let mut names = Config::option_names();
        names.extend(Route::OPTIONS.iter().map(|spec| spec.name));
        let _ = load_flags(&[(names[option], &value)]);
        check(&format!("{} = {:?}\n", names[option], value));
        check(&format!("[[route]]\n{} = {:?}\n", names[option], value));
    }

    #[test]
    fn durations_and_sizes_are_read_back_as_written(ms in 0..u64::MAX, bytes in any::<u64>()) {
        use crate::values::units;
        let duration = std::time::Duration::from_millis(ms);
        prop_assert_eq!(units::duration(&units::show_duration(duration)), Ok(duration));
        prop_assert_eq!(units::size(&units::show_size(bytes)), Ok(bytes));
    }
}
