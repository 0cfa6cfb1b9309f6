//! Sections of a page.

pub(super) fn section(title: &str, what: &str, body: &str) -> String {
    boxed("", title, what, body)
}

/// A section that stays on one page when printed.
pub(super) fn picture(title: &str, what: &str, body: &str) -> String {
    boxed(" class=\"picture\"", title, what, body)
}

fn boxed(class: &str, title: &str, what: &str, body: &str) -> String {
    format!("<section{class}><h2>{title}</h2><p class=\"what\">{what}</p>\n{body}</section>\n")
}
