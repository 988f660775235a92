"""Reader of a text in a shared object, without loading it: its description must be checked before it runs.

The format is that of 64-bit ELF files (System V ABI, chapters 4 and 5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LOAD, DYNAMIC = 1, 2
HASH, STRTAB, SYMTAB = 4, 5, 6
SYMBOL_BYTES = 24


def symbol_text(content: bytes, name: str) -> str | None:
    """Return the zero-terminated text at the exported symbol ``name``; None if there is none.

    It raises no error, whatever the bytes are.
    """
    try:
        return next(_texts(content, name.encode()), None)
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _texts(content: bytes, name: bytes) -> Iterator[str]:
    segments = list(_segments(content))
    tables = dict(_dynamic(content, segments))
    symbols, names = (_offset(segments, tables.get(tag, -1)) for tag in (SYMTAB, STRTAB))
    for number in range(1, _count(content, segments, tables, symbols, names)):
        name_at, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", content, symbols + 24 * number)
        if section and _until_zero(content, names + name_at) == name:
            yield _until_zero(content, _offset(segments, value)).decode()


def _segments(content: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield kind, offset in the file, address and size in bytes of each segment."""
    if content[:6] != b"\x7fELF\x02\x01":
        return
    (start,), (size, count) = struct.unpack_from("<Q", content, 32), struct.unpack_from("<HH", content, 54)
    for number in range(count):
        kind, _, offset, address, _, held = struct.unpack_from("<IIQQQQ", content, start + number * size)
        yield kind, offset, address, held


def _dynamic(content: bytes, segments: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
    for kind, offset, _, held in segments:
        if kind == DYNAMIC:
            yield from struct.iter_unpack("<QQ", content[offset : offset + held // 16 * 16])


def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
    """Return an address's offset in the file. Raises ValueError."""
    for kind, offset, start, held in segments:
        if kind == LOAD and start <= address < start + held:
            return offset + address - start
    raise ValueError(f"address {address} is in no segment")


def _count(
    content: bytes,
    segments: list[tuple[int, int, int, int]],
    tables: dict[int, int],
    symbols: int,
    names: int,
) -> int:
    """Return the number of symbols: by the hash table, or up to the names, which linkers put after them."""
    if HASH in tables:
        return struct.unpack_from("<II", content, _offset(segments, tables[HASH]))[1]
    return max(0, names - symbols) // SYMBOL_BYTES


def _until_zero(content: bytes, start: int) -> bytes:
    return content[start : content.index(b"\0", start)]
