//! A writer for the text format of Prometheus (version 0.0.4).

use std::fmt::{Display, Write as _};

/// The page so far: metric families, each followed by its samples.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    family: String,
}

impl Page {
    /// Begins a family with the prefix `dormouse_`; the samples that follow belong to it.
    pub(super) fn family(&mut self, name: &str, help: &str) {
        self.family_of_all(&format!("dormouse_{name}"), help);
    }

    /// Begins a family whose name is common to all programs, without the prefix. A name that ends in `_total` is a
    /// counter's.
    pub(super) fn family_of_all(&mut self, name: &str, help: &str) {
        let is_counter = name.ends_with("_total");
        self.begin(name, if is_counter { "counter" } else { "gauge" }, help);
    }

    /// Begins a family of a histogram, with the prefix.
    pub(super) fn histogram(&mut self, name: &str, help: &str) {
        self.begin(&format!("dormouse_{name}"), "histogram", help);
    }

    /// Writes a family of one sample without labels.
    pub(super) fn value(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help);
        self.sample(&[], value);
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        name.clone_into(&mut self.family);
        // Writing into a String can't fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes a sample of the current family.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// Writes a sample of a histogram with the name's `suffix`.
    pub(super) fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.family);
        self.text.push_str(suffix);
        for (n, (name, value)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    /// Returns the page.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Escapes a label value.
fn escaped(value: &str) -> String {
    // File names and certificate names can contain any character.
    let value = dormouse_printable::lines(value).to_string();
    let escape = |character| match character {
        '\\' => "\\\\".to_owned(),
        '"' => "\\\"".to_owned(),
        '\n' => "\\n".to_owned(),
        other => String::from(other),
    };
    value.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_follows_the_prometheus_text_format() {
        let mut page = Page::default();
        page.family("x_total", "Of x.");
        page.sample(&[("file", "a\"b\\c\nd"), ("name", "é")], 7);
        page.sample_of("_sum", &[], 0.25);
        assert_eq!(
            page.finish(),
            "# HELP dormouse_x_total Of x.\n# TYPE dormouse_x_total counter\n\
             dormouse_x_total{file=\"a\\\"b\\\\c\\nd\",name=\"é\"} 7\ndormouse_x_total_sum 0.25\n"
        );
    }
}
