"""Reads heap dumps of the JVM (HPROF 1.0.2), as far as it takes to find large arrays of primitive values."""

import struct

HEAP_DUMPS = (0x0C, 0x1C)
# Bytes of a value, by the format's number of its type. 2 is a reference.
SIZES = {4: 1, 5: 2, 6: 4, 7: 8, 8: 1, 9: 2, 10: 4, 11: 8}
PRIMITIVE_ARRAY = 0x23
OBJECT_ARRAY = 0x22
INSTANCE = 0x21
CLASS = 0x20
# Roots: how many identifiers and how many other bytes each has.
ROOTS = {0xFF: (1, 0), 0x01: (2, 0), 0x02: (1, 8), 0x03: (1, 8), 0x04: (1, 4), 0x05: (1, 0), 0x06: (1, 4), 0x07: (1, 0), 0x08: (1, 8)}


def large_arrays(path, least):
    """Return the bytes of each primitive array with at least so many."""
    with open(path, "rb") as file:
        while file.read(1) != b"\0":
            pass
        (identifier,) = struct.unpack(">I8x", file.read(12))
        found = []
        while head := file.read(9):
            tag, length = struct.unpack(">B4xI", head)
            if tag in HEAP_DUMPS:
                found += _in_segment(file.read(length), identifier, least)
            else:
                file.seek(length, 1)
        return found


def _in_segment(data, identifier, least):
    sizes = {**SIZES, 2: identifier}
    found = []
    at = 0
    while at < len(data):
        tag = data[at]
        at += 1
        if tag in ROOTS:
            identifiers, others = ROOTS[tag]
            at += identifiers * identifier + others
        elif tag == PRIMITIVE_ARRAY:
            count, kind = struct.unpack_from(">IB", data, at + identifier + 4)
            size = count * sizes[kind]
            if size >= least:
                found.append(size)
            at += identifier + 9 + size
        elif tag == OBJECT_ARRAY:
            (count,) = struct.unpack_from(">I", data, at + identifier + 4)
            at += 2 * identifier + 8 + count * identifier
        elif tag == INSTANCE:
            (size,) = struct.unpack_from(">I", data, at + 2 * identifier + 4)
            at += 2 * identifier + 8 + size
        elif tag == CLASS:
            at = _after_class(data, at, identifier, sizes)
        else:
            raise ValueError(f"unknown record {tag:#x} at {at}")
    return found


def _after_class(data, start, identifier, sizes):
    at = start + 7 * identifier + 8
    (constants,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(constants):
        at += 3 + sizes[data[at + 2]]
    (statics,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(statics):
        at += identifier + 1 + sizes[data[at + identifier]]
    (fields,) = struct.unpack_from(">H", data, at)
    return at + 2 + fields * (identifier + 1)
