"""Linker of x86-64 object files (LLVM's large code model) to a shared object, without a system linker.

The layout is the minimum for ``dlopen``: one segment of headers, symbols, code and constants, and one of the
global offset table and the dynamic section (System V ABI, AMD64 supplement, chapters 4 and 5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.diagnostics.kernels import LinkFailed

PAGE = 4096
ALLOCATED, RELOCATIONS, SYMBOLS, NO_BITS = 0x2, 4, 2, 8
RESERVED = 0xFF00
"""First reserved section number: a symbol's number from here on is no section."""
PC64, GOTOFF64, GOTPC64, GOT64 = 24, 25, 29, 27
GLOB_DAT, RELATIVE = 6, 8
HASH, STRTAB, SYMTAB, RELA_TABLE, RELA_BYTES, RELA_ENTRY_BYTES, STRTAB_BYTES, SYMBOL_BYTES = range(4, 12)
HEADERS_BYTES = 64 + 4 * 56
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


@dataclass(frozen=True)
class ObjectFile:
    """Object file. ``names``: library's name -> its symbol in the file, for exported symbols; None: all."""

    content: bytes
    names: Mapping[str, str] | None = None


def link_objects(objects: Sequence[ObjectFile]) -> bytes:
    """Link object files to a shared object. Undefined symbols are resolved in the process that loads it.

    Raises LinkFailed for an unsupported kind of relocation.
    """
    linker = _Linker()
    for file in objects:
        linker.take(file)
    return linker.image()


class _Linker:
    """Linker that lays out the parts, and then fills them in. Addresses are offsets in the file."""

    def __init__(self) -> None:
        self.sections: list[_Section] = []
        self.symbols: list[_Symbol] = []
        self.exported: list[_Symbol] = []
        self.relocations: list[tuple[int, int, int, int, int]] = []

    def take(self, file: ObjectFile) -> None:
        """Append the sections, symbols and relocations of a file, and continue their numbers."""
        sections, number, symbol = _sections(file.content), len(self.sections), len(self.symbols)
        for found in _symbols(sections):
            is_inside = 0 < found.section < RESERVED
            self.symbols.append(replace(found, section=found.section + number) if is_inside else found)
        own = {
            s.name: s for s in self.symbols[symbol:] if s.info >> 4 and s.section and s.name
        }  # global ones
        names = {name: name for name in own} if file.names is None else file.names
        self.exported += [replace(own[old], name=new) for new, old in names.items() if old in own]
        self.relocations += [
            (number + section.info, offset, symbol + target, kind, addend)
            for section in sections
            if section.kind == RELOCATIONS and _is_loaded(sections[section.info])
            for offset, target, kind, addend in _relocations(section)
        ]
        self.sections += sections

    def image(self) -> bytes:
        """Return the shared object."""
        undefined = [s.name for s in self.symbols if not s.section and s.name not in ("", GOT_SYMBOL)]
        self.missing = list(dict.fromkeys(undefined))
        slots = (symbol for _, _, symbol, kind, _ in self.relocations if kind == GOT64)
        self.slots = list(dict.fromkeys(slots))
        names = [*self.missing, *(s.name for s in self.exported)]
        self.names = b"\0" + b"".join(name.encode() + b"\0" for name in names)
        self._lay_out()
        return self._image()

    def _lay_out(self) -> None:
        """Lay out headers, hash table, symbols, names, relocations, sections; on a new page, the data."""
        symbols = 1 + len(self.missing) + len(self.exported)
        tables = {SYMTAB: 24 * symbols, STRTAB: len(self.names), RELA_TABLE: 24 * len(self.slots)}
        at = HEADERS_BYTES
        self.place: dict[int, int] = {}
        for tag, size in {HASH: 4 * (3 + symbols), **tables}.items():
            self.place[tag] = _round(at, 16)
            at = self.place[tag] + size
        self.address: dict[int, int] = {}
        for number, section in enumerate(self.sections):
            if _is_loaded(section):
                self.address[number] = _round(at, max(1, section.alignment))
                at = self.address[number] + len(section.content)
        self.end, self.got = at, _round(at, PAGE)
        self.dynamic = self.got + 8 * max(1, len(self.slots))

    def _image(self) -> bytes:
        dynamic = self._dynamic_section()
        image = bytearray(self.dynamic + len(dynamic))
        parts = {
            0: _headers(self.end, self.got, self.dynamic, len(image)),
            self.place[HASH]: self._hash_table(),
            self.place[SYMTAB]: self._dynamic_symbols(),
            self.place[STRTAB]: self.names,
            self.place[RELA_TABLE]: b"".join(map(self._slot, range(len(self.slots)))),
            self.dynamic: dynamic,
            **{start: self.sections[number].content for number, start in self.address.items()},
        }
        for start, part in parts.items():
            image[start : start + len(part)] = part
        for section, offset, symbol, kind, addend in self.relocations:
            where = self.address[section] + offset
            struct.pack_into("<q", image, where, self._relocated(section, where, symbol, kind) + addend)
        return bytes(image)

    def _relocated(self, section: int, where: int, symbol: int, kind: int) -> int:
        if kind == GOTPC64:
            return self.got - where
        if kind == GOT64:
            return 8 * self.slots.index(symbol)
        if kind == GOTOFF64 and self.symbols[symbol].section:
            return self._value(self.symbols[symbol]) - self.got
        if kind == PC64 and self.symbols[symbol].section:
            return self._value(self.symbols[symbol]) - where
        named, inside = self.symbols[symbol].name, self.sections[section].name
        output = f"a relocation of kind {kind} to {named!r} in {inside}"
        raise LinkFailed(linker="shardc's linker", code=1, output=output)

    def _value(self, symbol: _Symbol) -> int:
        return self.address[symbol.section] + symbol.value

    def _hash_table(self) -> bytes:
        """Return a hash table of one bucket with all symbols in a chain, since there are few."""
        count = 1 + len(self.missing) + len(self.exported)
        chain = [0, *range(2, count), 0][:count]
        return struct.pack(f"<{3 + count}I", 1, count, min(1, count - 1), *chain)

    def _dynamic_symbols(self) -> bytes:
        rows = [(name, 0x10, 0, 0, 0, 0) for name in self.missing]
        rows += [(s.name, s.info, 0, 1, self._value(s), s.size) for s in self.exported]
        return bytes(24) + b"".join(struct.pack(SYMBOL, self._name(name), *row) for name, *row in rows)

    def _name(self, name: str) -> int:
        return self.names.index(b"\0" + name.encode() + b"\0") + 1

    def _slot(self, number: int) -> bytes:
        """Return the relocation with which the loader fills an entry of the global offset table."""
        symbol, where = self.symbols[self.slots[number]], self.got + 8 * number
        if symbol.section:
            return struct.pack(RELA, where, RELATIVE, self._value(symbol))
        return struct.pack(RELA, where, (1 + self.missing.index(symbol.name)) << 32 | GLOB_DAT, 0)

    def _dynamic_section(self) -> bytes:
        sizes = {STRTAB_BYTES: len(self.names), SYMBOL_BYTES: 24}
        sizes |= {RELA_BYTES: 24 * len(self.slots), RELA_ENTRY_BYTES: 24}
        entries = [*self.place.items(), *sizes.items(), (0, 0)]
        return b"".join(struct.pack(DYNAMIC, *entry) for entry in entries)


def _sections(content: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", content, start + n * size) for n in range(count)]
    strings = content[raw[names][4] : raw[names][4] + raw[names][5]]
    found = []
    for name, kind, flags, _, offset, length, link, info, alignment, _ in raw:
        held = bytes(length) if kind == NO_BITS else content[offset : offset + length]
        found.append(_Section(_string(strings, name), kind, flags, held, link, info, alignment))
    return found


def _symbols(sections: list[_Section]) -> Iterator[_Symbol]:
    for section in sections:
        if section.kind == SYMBOLS:
            for name, info, _, index, value, size in struct.iter_unpack(SYMBOL, section.content):
                yield _Symbol(_string(sections[section.link].content, name), info, index, value, size)


def _relocations(section: _Section) -> Iterator[tuple[int, int, int, int]]:
    """Yield offset, number of the symbol, kind and addend."""
    for offset, info, addend in struct.iter_unpack(RELA, section.content):
        yield offset, info >> 32, info & 0xFFFFFFFF, addend


def _is_loaded(section: _Section) -> bool:
    """Return True for code and data, but not for unwind tables, which only C++ exceptions need."""
    return bool(section.flags & ALLOCATED) and section.name != ".eh_frame"


def _headers(end: int, got: int, dynamic: int, total: int) -> bytes:
    """Return the ELF header, and program headers of code, table, dynamic section and non-executable stack."""
    identity = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    elf = identity + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    segments = [(1, 5, 0, end, PAGE), (1, 6, got, total - got, PAGE)]
    segments += [(2, 6, dynamic, total - dynamic, 8), (0x6474E551, 6, 0, 0, 16)]
    return elf + b"".join(
        struct.pack(PROGRAM_HEADER, kind, flags, start, start, start, size, size, alignment)
        for kind, flags, start, size, alignment in segments
    )


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _round(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
