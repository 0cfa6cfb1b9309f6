//! The mark in the file of every program that is linked with this crate: an ELF note, which neither `strip` nor the linker
//! removes. An upgrade executes only programs with it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::Fd;

/// A note as in an ELF file (elf(5)).
#[repr(C)]
struct Note {
    name_len: u32,
    content_len: u32,
    kind: u32,
    name: [u8; NAME_LEN],
    content: [u8; CONTENT_LEN],
}

const NAME_LEN: usize = 12;
const CONTENT_LEN: usize = 16;

#[used]
#[unsafe(link_section = ".note.dormouse")]
static MARK: Note = Note {
    name_len: 9,
    content_len: CONTENT_LEN as u32,
    kind: 1,
    name: *b"Dormouse\0\0\0\0",
    // Random.
    content: 0x5bd1_e995_6c07_41f3_a0c6_d8e2_17b4_93fa_u128.to_be_bytes(),
};

/// Bounds on what is read of a file.
const SEGMENTS_MAX: u16 = 256;
const NOTES_BYTES_MAX: u64 = 64 << 10;

/// Type of a segment with notes.
const PT_NOTE: u32 = 4;

/// Whether the program in this file has the mark. `false` for any other file.
///
/// # Errors
/// The operating system's error: the file cannot be read.
pub fn is_marked(program: Fd) -> io::Result<bool> {
    // The descriptor may be for executing only.
    let path = format!("/proc/self/fd/{program}");
    if !std::fs::metadata(&path)?.is_file() {
        return Ok(false);
    }
    match notes(&File::open(&path)?) {
        Ok(found) => Ok(found.iter().any(|notes| has_mark(notes))),
        // Numbers in the file that lead out of it.
        Err(error) => match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => Ok(false),
            _ => Err(error),
        },
    }
}

/// The contents of all segments with notes of a 64-bit ELF file for this kind of machine.
fn notes(file: &File) -> io::Result<Vec<Vec<u8>>> {
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    let byte_order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if head.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, byte_order]) {
        return Ok(Vec::new());
    }
    let (segments, len, count) = (u64_at(&head, 32), u16_at(&head, 54), u16_at(&head, 56));
    let mut all = Vec::new();
    for number in 0..count.min(SEGMENTS_MAX) {
        let mut segment = [0; 56];
        let at = segments.saturating_add(u64::from(number) * u64::from(len));
        file.read_exact_at(&mut segment, at)?;
        let (offset, size) = (u64_at(&segment, 8), u64_at(&segment, 32));
        if u32_at(&segment, 0) == PT_NOTE && size <= NOTES_BYTES_MAX {
            let mut notes = vec![0; size as usize];
            file.read_exact_at(&mut notes, offset)?;
            all.push(notes);
        }
    }
    Ok(all)
}

/// Whether the mark is among these notes. Each begins at a multiple of four.
fn has_mark(notes: &[u8]) -> bool {
    let Note {
        name_len,
        content_len,
        kind,
        name,
        content,
    } = &MARK;
    let numbers = [name_len, content_len, kind].map(|number| number.to_ne_bytes());
    let mark = [&numbers.concat()[..], name, content].concat();
    let starts = (0..notes.len()).step_by(4);
    let mut rests = starts.filter_map(|at| notes.get(at..));
    rests.any(|rest| rest.starts_with(&mark))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(array_at(bytes, at))
}

/// Bytes of a fixed structure, all of which were read.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let rest = bytes.get(at..).and_then(<[u8]>::first_chunk);
    rest.copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::open_program;
    use std::path::Path;

    fn is_marked_at(path: &Path) -> bool {
        let program = open_program(path).expect("a file");
        let marked = is_marked(program).expect("a readable file");
        program.close();
        marked
    }

    #[test]
    fn only_programs_of_this_project_are_marked() {
        let own = std::env::current_exe().expect("a path");
        assert!(is_marked_at(&own));
        for other in ["/bin/sh", "/etc/passwd", "/dev/null", "/bin"] {
            assert!(!is_marked_at(other.as_ref()), "{other}");
        }
        // The bytes alone are no mark, and damage is no error.
        let folder = std::env::temp_dir().join(format!("dormouse-mark-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let file = folder.join("file");
        let whole = std::fs::read(&own).expect("this program");
        let start = whole.get(..4096).expect("longer");
        let mut inputs = vec![Vec::new(), MARK.content.to_vec(), start.to_vec()];
        for at in [32, 39, 54, 56, 57] {
            let mut damaged = start.to_vec();
            damaged[at] = 0xff;
            inputs.push(damaged);
        }
        for input in inputs {
            std::fs::write(&file, &input).expect("written");
            // The mark is in the first page, or the segment is not read.
            let _ = is_marked_at(&file);
        }
        std::fs::write(&file, [&b"#!/bin/sh\n"[..], &MARK.content].concat()).expect("written");
        assert!(!is_marked_at(&file), "a script");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
