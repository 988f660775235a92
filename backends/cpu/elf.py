"""Links one x86-64 object file of LLVM's large code model into a shared object, where a machine has no linker.

The layout is the least that ``dlopen`` takes: one segment of headers, symbols, code and constants, one of the global
offset table and the dynamic section. Formats and relocations: System V ABI, AMD64 supplement, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from shardc.diagnostics.kernels import LinkFailed

PAGE = 4096
ALLOCATED, RELOCATIONS, SYMBOLS, NO_BITS = 0x2, 4, 2, 8
PC64, GOTOFF64, GOTPC64, GOT64 = 24, 25, 29, 27
GLOB_DAT, RELATIVE = 6, 8
GOT_SYMBOL = "_GLOBAL_OFFSET_TABLE_"
SYMBOL, RELA, PROGRAM_HEADER, DYNAMIC = "<IBBHQQ", "<QQq", "<IIQQQQQQ", "<QQ"


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    content: bytes
    link: int
    info: int
    alignment: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    info: int
    section: int
    value: int
    size: int

    @property
    def is_global(self) -> bool:
        return self.info >> 4 != 0


def link_object(content: bytes) -> bytes:
    """The shared object of an object file. Symbols that it lacks are found in the process when it is loaded.

    Raises:
        LinkFailed: a relocation of a kind that LLVM has not made so far.
    """
    sections = _sections(content)
    symbols = list(_symbols(sections))
    exported = [s for s in symbols if s.is_global and s.section and s.name]
    missing = list(dict.fromkeys(s.name for s in symbols if not s.section and s.name and s.name != GOT_SYMBOL))
    relocations = [
        (section.info, *rest)
        for section in sections
        if section.kind == RELOCATIONS and _is_loaded(sections[section.info])
        for rest in _relocations(section)
    ]
    slots = list(dict.fromkeys(symbol for _, _, symbol, kind, _ in relocations if kind == GOT64))

    names = b"\0" + b"".join(n.encode() + b"\0" for n in [*missing, *(s.name for s in exported)])
    count = 1 + len(missing) + len(exported)
    parts = {
        "hash": struct.pack(f"<{3 + count}I", 1, count, min(1, count - 1), *_chain(count)),
        "symbols": bytes(24 * count),
        "names": names,
        "relocations": bytes(24 * len(slots)),
    }
    at, place = 64 + 4 * 56, {}
    for name, part in parts.items():
        at = place[name] = _round(at, 16)
        at += len(part)
    address: dict[int, int] = {}
    for number, section in enumerate(sections):
        if _is_loaded(section):
            at = address[number] = _round(at, max(1, section.alignment))
            at += len(section.content)
    got = _round(at, PAGE)
    dynamic = got + 8 * max(1, len(slots))
    image = bytearray(dynamic + 16 * 9)

    def value_of(symbol: _Symbol) -> int:
        return got if symbol.name == GOT_SYMBOL else address[symbol.section] + symbol.value

    parts["symbols"] = _dynamic_symbols(missing, exported, names, address)
    parts["relocations"] = b"".join(
        _slot(got + 8 * n, symbols[s], missing, value_of) for n, s in enumerate(slots)
    )
    for name, part in parts.items():
        image[place[name] : place[name] + len(part)] = part
    for number, start in address.items():
        image[start : start + len(sections[number].content)] = sections[number].content
    for section, offset, symbol, kind, addend in relocations:
        where = address[section] + offset
        if kind == GOTPC64:
            result = got + addend - where
        elif kind == GOTOFF64:
            result = value_of(symbols[symbol]) + addend - got
        elif kind == GOT64:
            result = 8 * slots.index(symbol) + addend
        elif kind == PC64 and symbols[symbol].section:
            result = value_of(symbols[symbol]) + addend - where
        else:
            raise LinkFailed(linker="shardc's linker", code=1, output=f"relocation of kind {kind} in {sections[section].name}")
        struct.pack_into("<q", image, where, result)
    entries = [(4, place["hash"]), (5, place["names"]), (6, place["symbols"]), (10, len(names)), (11, 24),
               (7, place["relocations"]), (8, 24 * len(slots)), (9, 24), (0, 0)]  # fmt: skip
    image[dynamic:] = b"".join(struct.pack(DYNAMIC, *entry) for entry in entries)
    image[: 64 + 4 * 56] = _headers(at, got, dynamic, len(image))
    return bytes(image)


def _sections(content: bytes) -> list[_Section]:
    start, (size, count, names) = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<HHH", content, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", content, start + n * size) for n in range(count)]
    strings = content[raw[names][4] : raw[names][4] + raw[names][5]]
    return [
        _Section(
            _string(strings, name), kind, flags, bytes(length) if kind == NO_BITS else content[offset : offset + length],
            link, info, alignment,
        )
        for name, kind, flags, _, offset, length, link, info, alignment, _ in raw
    ]  # fmt: skip


def _symbols(sections: list[_Section]) -> Iterator[_Symbol]:
    for section in sections:
        if section.kind == SYMBOLS:
            for name, info, _, index, value, size in struct.iter_unpack(SYMBOL, section.content):
                yield _Symbol(_string(sections[section.link].content, name), info, index, value, size)


def _relocations(section: _Section) -> Iterator[tuple[int, int, int, int]]:
    """Offset, number of the symbol, kind, addend."""
    for offset, info, addend in struct.iter_unpack(RELA, section.content):
        yield offset, info >> 32, info & 0xFFFFFFFF, addend


def _is_loaded(section: _Section) -> bool:
    """Code and data; not the tables for unwinding, which C++ exceptions alone need."""
    return bool(section.flags & ALLOCATED) and section.name != ".eh_frame"


def _chain(count: int) -> list[int]:
    """The chain of the one bucket: 1, 2, 3 ..., then the end."""
    return [0, *(n + 1 if n + 1 < count else 0 for n in range(1, count))]


def _dynamic_symbols(missing: list[str], exported: list[_Symbol], names: bytes, address: dict[int, int]) -> bytes:
    packed = [bytes(24)]
    for name in missing:
        packed.append(struct.pack(SYMBOL, _name_at(names, name), 0x10, 0, 0, 0, 0))
    for s in exported:
        packed.append(struct.pack(SYMBOL, _name_at(names, s.name), s.info, 0, 1, address[s.section] + s.value, s.size))
    return b"".join(packed)


def _name_at(names: bytes, name: str) -> int:
    return names.index(b"\0" + name.encode() + b"\0") + 1


def _slot(where: int, symbol: _Symbol, missing: list[str], value_of: object) -> bytes:
    """How the loader fills an entry of the global offset table."""
    if symbol.section:
        return struct.pack(RELA, where, RELATIVE, value_of(symbol))
    return struct.pack(RELA, where, (1 + missing.index(symbol.name)) << 32 | GLOB_DAT, 0)


def _headers(end: int, got: int, dynamic: int, total: int) -> bytes:
    """The ELF header and four program headers: code and constants, table, dynamic section, a stack without code."""
    identity = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    elf = identity + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    segments = [(1, 5, 0, end, PAGE), (1, 6, got, total - got, PAGE), (2, 6, dynamic, total - dynamic, 8), (0x6474E551, 6, 0, 0, 16)]
    return elf + b"".join(
        struct.pack(PROGRAM_HEADER, kind, flags, start, start, start, size, size, alignment)
        for kind, flags, start, size, alignment in segments
    )


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _round(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
