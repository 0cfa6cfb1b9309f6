//! The HTML report of an audit in a real browser.

use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_interop::tools;

/// Shortened audits of real systems.
const AUDITS: &str = "../crates/instrument/audit/tests/audits.json";
/// Width of a phone, and of a window.
const WIDTHS: [u32; 2] = [390, 1_000];

/// Shows every page at every width, and reports what overflows: content that needs horizontal scrolling of
/// the whole page.
const LOOK: &str = r#"
window.addEventListener('load', () => {
  const told = [];
  for (const frame of document.querySelectorAll('iframe')) {
    const page = frame.contentDocument, wide = frame.contentWindow.innerWidth;
    const what = `${frame.title} at ${wide}`;
    if (wide !== Number(frame.width)) told.push(`${what}: not ${frame.width}`);
    for (const closed of page.querySelectorAll('details')) closed.open = true;
    if (page.documentElement.scrollWidth > wide) told.push(`${what}: scrolls sideways`);
    for (const one of page.querySelectorAll('main *')) {
      const box = one.getBoundingClientRect();
      if (box.right > wide + 1 && !one.closest('.scroll')) told.push(`${what}: ${one.outerHTML.slice(0, 80)}`);
    }
    for (const one of page.querySelectorAll('svg'))
      if (one.getAttribute('role') !== 'img' || !one.getAttribute('aria-label')) told.push(`${what}: a picture without words`);
    const ids = [...page.querySelectorAll('[id]')].map(one => one.id);
    for (const one of page.querySelectorAll('a'))
      if (!ids.includes(one.getAttribute('href').slice(1))) told.push(`${what}: ${one.outerHTML} leads nowhere`);
    if (!page.querySelector('main h1') || !page.querySelector('section')) told.push(`${what}: is empty`);
  }
  document.body.textContent = 'LOOKED ' + JSON.stringify(told);
});
"#;

#[test]
fn pages_fit_a_phone_without_console_messages() {
    requires!("chromium");
    let folder = tempfile::tempdir().expect("a folder");
    let audits = std::fs::read_to_string(tools::home().join(AUDITS)).expect("audits");
    let mut pages = vec![draw(folder.path(), "all", &audits)];
    for (number, audit) in audits.lines().enumerate() {
        pages.push(draw(folder.path(), &number.to_string(), audit));
    }
    assert!(pages.len() > 3);
    let escaped = |page: &str| page.replace('&', "&amp;").replace('"', "&quot;");
    let mut frames = String::new();
    for (number, page) in pages.iter().enumerate() {
        for outside in ["src=", "url(", "@import", "<link", "<script", "href=\"http"] {
            assert!(!page.contains(outside), "page {number}: {outside}");
        }
        for width in WIDTHS {
            let page = escaped(page);
            frames += &format!(
                "<iframe title=\"page {number}\" width=\"{width}\" style=\"border:0\" srcdoc=\"{page}\"></iframe>"
            );
        }
    }
    let wrapper = folder.path().join("wrapper.html");
    let text = format!("<!doctype html><meta charset=utf-8><script>{LOOK}</script><body>{frames}");
    std::fs::write(&wrapper, text).expect("a file");
    let (document, said) = browse(&wrapper, folder.path());
    assert!(document.contains("LOOKED []"), "{document}\n{said}");
    assert!(!said.contains("CONSOLE"), "{said}");
}

/// The report of some audits.
fn draw(folder: &Path, name: &str, audits: &str) -> String {
    let (json, page) = (
        folder.join(format!("{name}.json")),
        folder.join(format!("{name}.html")),
    );
    std::fs::write(&json, audits).expect("a file");
    let drawn = Command::new(tools::dormouse())
        .args(["audit", "report", "--title", "A page", "--output"])
        .args([&page, &json])
        .output()
        .expect("the program starts");
    assert!(drawn.status.success(), "{drawn:?}");
    std::fs::read_to_string(&page).expect("a page")
}

/// The loaded document, and the browser's console output.
fn browse(file: &Path, folder: &Path) -> (String, String) {
    let profile = format!("--user-data-dir={}", folder.join("browser").display());
    let output = Command::new(tools::path("chromium"))
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
            &profile,
        ])
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .expect("chromium");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
