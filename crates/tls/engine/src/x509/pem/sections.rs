//! Divides a PEM text (RFC 7468) into its sections. Every byte belongs to a section, is white space, or is commentary
//! between sections; anything else is refused with its line. What OpenSSL reads is read too, or refused: where OpenSSL
//! passes over a section in silence (a marker behind other text, an unknown label, a damaged marker), a chain would be
//! incomplete, an authority or a revocation list missing, and nobody would know.
//!
//! More than OpenSSL does: a byte order mark may be at the start of each line outside of sections, lines may end with a
//! carriage return alone, and a section may have blank lines and lack its padding.

use std::ops::ControlFlow;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::*;
use zeroize::Zeroizing;

use crate::x509::pem::kind::Kind;

/// A section of a text.
pub(crate) struct Section {
    pub(crate) kind: Kind,
    /// The line that begins it, from 1.
    pub(crate) line: usize,
    /// Its content; that of an encrypted key is of no use.
    pub(crate) der: Zeroizing<Vec<u8>>,
}

/// The first line of a text that breaks the rules, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    pub(crate) line: usize,
    pub(crate) why: String,
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the sections in their order.
pub(crate) fn sections(text: &[u8]) -> Result<Vec<Section>, BadLine> {
    let mut sections = Vec::new();
    let mut begun: Option<Begun<'_>> = None;
    // With room for all: a growing vector leaves copies of a key behind.
    let mut encoded = Zeroizing::new(Vec::with_capacity(text.len()));
    for (line, content) in (1..).zip(lines(text)) {
        let refuse = |why| BadLine { line, why };
        if content.contains(&0) {
            return Err(refuse("a NUL byte, so this is not text".to_owned()));
        }
        let Some(section) = &mut begun else {
            begun = Begun::at(line, content).map_err(refuse)?;
            encoded.clear();
            continue;
        };
        let flow = section.take(content, &mut encoded).map_err(refuse)?;
        if flow.is_break() {
            let der = decode(&encoded).ok_or_else(|| section.refuse("its base64 is incomplete"))?;
            if der.is_empty() {
                return Err(section.refuse("it is empty"));
            }
            let (kind, line) = (section.kind, section.line);
            sections.push(Section { kind, line, der });
            begun = None;
        }
    }
    match begun {
        None => Ok(sections),
        Some(section) => Err(section.refuse("no line ends it; the file may be cut off")),
    }
}

/// Lines as any system writes them. Files that were joined may have several kinds.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            rest = None;
            return Some(text);
        };
        let (line, ending) = text.split_at(end);
        rest = ending.strip_prefix(b"\r\n").or(ending.get(1..));
        Some(line)
    })
}

/// A section that no line has ended yet.
struct Begun<'a> {
    label: &'a [u8],
    kind: Kind,
    line: usize,
    /// Whether its lines so far are headers of an encrypted key (RFC 1421 §4.6).
    is_in_headers: bool,
}

impl<'a> Begun<'a> {
    /// The section that this line outside of sections begins. `None`: it is commentary.
    fn at(line: usize, mut content: &'a [u8]) -> Result<Option<Begun<'a>>, String> {
        while let Some(rest) = content.strip_prefix(BYTE_ORDER_MARK) {
            content = rest;
        }
        if is_comment(content) {
            return Ok(None);
        }
        let Some(rest) = content.strip_prefix(BEGIN) else {
            return commentary(content).map(|()| None);
        };
        let label = without_ending(rest).ok_or_else(|| not_alone("-----BEGIN"))?;
        Ok(Some(Begun {
            label,
            kind: Kind::of(label)?,
            line,
            is_in_headers: false,
        }))
    }

    /// Takes a line within the section. Breaks at its end.
    fn take(&mut self, line: &[u8], encoded: &mut Vec<u8>) -> Result<ControlFlow<()>, String> {
        if let Some(rest) = line.strip_prefix(END) {
            return match without_ending(rest) {
                Some(label) if label == self.label => Ok(ControlFlow::Break(())),
                Some(_) => Err(self.begun("and this line ends another section")),
                None => Err(not_alone("-----END")),
            };
        }
        if contains(line, BEGIN) {
            return Err(self.begun("and no line ends it before this one"));
        }
        if self.takes_header(line, encoded.is_empty())? {
            return Ok(ControlFlow::Continue(()));
        }
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let is_blank = |byte: &u8| byte.is_ascii_whitespace();
        if line.iter().all(is_base64) {
            // Nearly every line: copied at once.
            encoded.extend_from_slice(line);
        } else if line.iter().all(|byte| is_base64(byte) || is_blank(byte)) {
            encoded.extend(line.iter().filter(|byte| !is_blank(byte)));
        } else {
            return Err(self.begun("and this line is neither base64 nor its end"));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether this line is a header. Only keys have headers, and they are encrypted then: OpenSSL refuses any other.
    fn takes_header(&mut self, line: &[u8], is_first: bool) -> Result<bool, String> {
        let has_colon = line.contains(&b':');
        if is_first && has_colon && self.kind.is_key() {
            let value = line.strip_prefix(b"Proc-Type:").unwrap_or_default();
            if value.trim_ascii() == b"4,ENCRYPTED" {
                self.kind = Kind::EncryptedKey;
                self.is_in_headers = true;
            }
        }
        self.is_in_headers &= has_colon;
        if is_first && has_colon && !self.is_in_headers {
            return Err(self.begun("and this line is a header, which only an encrypted key has"));
        }
        Ok(self.is_in_headers)
    }

    fn begun(&self, and: &str) -> String {
        let (label, line) = (shown(self.label), self.line);
        format!("the section {label} begins at line {line}, {and}")
    }

    fn refuse(&self, why: &str) -> BadLine {
        BadLine {
            line: self.line,
            why: format!("the section {} begins here, but {why}", shown(self.label)),
        }
    }
}

/// Returns the label before a marker's last dashes. Some programs leave spaces and control characters behind them.
fn without_ending(rest: &[u8]) -> Option<&[u8]> {
    let is_content = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    let end = rest.iter().rposition(is_content)?;
    let label = rest.get(..=end)?.strip_suffix(DASHES)?;
    (!contains(label, DASHES)).then_some(label)
}

fn not_alone(marker: &str) -> String {
    format!(
        "{marker} and other text in one line; put a line break before and after each marker, as in files joined with: \
         awk 1 FILE…"
    )
}

/// Whether a line is a comment whatever it has in it: a certificate that somebody has commented out.
fn is_comment(line: &[u8]) -> bool {
    /// OpenSSL reads longer lines in parts, and finds a marker at the beginning of a part.
    const LEN_MAX: usize = 253;
    line.trim_ascii_start().starts_with(b"#") && line.len() <= LEN_MAX
}

/// Refuses a line between sections that is no commentary: a marker which does not begin the line, is damaged, or ends
/// a section that was not begun. What follows it would be passed over.
fn commentary(line: &[u8]) -> Result<(), String> {
    if line.starts_with(END) {
        return Err("this line ends a section that no line begins".to_owned());
    }
    if contains(line, BEGIN) || contains(line, END) {
        return Err(
            "a marker that does not begin its line; remove what is before it, or put a line break there".to_owned(),
        );
    }
    let is_dash = |before: &[u8]| {
        // Word processors make one long dash of two; in UTF-8 those are U+2010 to U+2015, and U+2212.
        let long = before.len().checked_sub(3).and_then(|at| before.get(at..));
        before.ends_with(b"--")
            || long
                .is_some_and(|dash| matches!(dash, [0xe2, 0x80, 0x90..=0x95] | [0xe2, 0x88, 0x92]))
    };
    let is_damaged = [&b"BEGIN"[..], b"END"].iter().any(|word| {
        let has_word = |at: &usize| {
            let found = line.get(*at..).and_then(|rest| rest.get(..word.len()));
            found.is_some_and(|found| found.eq_ignore_ascii_case(word))
        };
        let mut places = (0..line.len()).filter(has_word);
        places.any(|at| {
            let before = line.get(..at).unwrap_or_default();
            is_dash(before.strip_suffix(b" ").unwrap_or(before))
        })
    });
    if is_damaged {
        return Err(
            "a damaged marker; it must be -----BEGIN CERTIFICATE----- or the like, with five dashes on either side"
                .to_owned(),
        );
    }
    Ok(())
}

/// The padding may be missing, but not be wrong.
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes base64 (RFC 4648 §4).
fn decode(encoded: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let room = base64::decoded_len_estimate(encoded.len());
    let mut der = Zeroizing::new(Vec::with_capacity(room));
    DECODER.decode_vec(encoded, &mut der).ok()?;
    Some(der)
}

/// The beginning of a label: a damaged file may be one long line.
fn shown(label: &[u8]) -> std::slice::EscapeAscii<'_> {
    label.get(..64).unwrap_or(label).escape_ascii()
}

/// Whether a text contains another one.
pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    // Lines of base64 have not even the first byte of a marker, and there are thousands of files of them.
    let may = part.first().is_none_or(|first| text.contains(first));
    may && text.windows(part.len()).any(|window| window == part)
}
