"""Text of a module: constants at the top, functions, and ``launch``, which starts them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardc.backends.triton.emit import flat
from shardc.backends.triton.emit.emitted import Emitted, Jit
from shardc.backends.triton.emit.memory import DTYPES, Memory, Work
from shardc.backends.triton.emit.reduce import Joins
from shardc.backends.triton.emit.scalars import HELPERS
from shardc.backends.triton.emit.text import size_text
from shardc.cost.kernel import Estimate
from shardc.cost.machine import Gpu

HEAD = '''"""{title}"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
'''


@dataclass(eq=False)
class Part:
    """Function of a module: its ``lines``, and how it is launched. ``grid``: text of a tuple."""

    name: str
    lines: list[str]
    constants: dict[str, int]
    grid: str
    num_warps: int
    comment: str
    num_stages: int = 2
    seconds: float = 0.0
    """Estimated seconds of the function."""
    spill_bytes: int = 0
    """Spilled bytes of a thread, whose cost is in ``seconds``."""
    before: tuple[str, ...] = ()
    """Lines of ``launch`` before the function starts."""
    loop: str = ""
    """Head of the loop in ``launch`` around the function. Neighbours with the same head share the loop."""
    integers: tuple[str, ...] = ()
    """Integer parameters that ``launch`` passes by name. One binary is for all values."""


@dataclass(eq=False)
class Module:
    """Module under construction.

    ``sizes``: lines of constants. ``helpers``: text of functions that ``parts`` call. ``before``: lines of
    ``launch`` before the first part. ``numbers``: integers other than sizes, such as a draw's number, for
    which no binary is specialised.
    """

    name: str
    title: str
    memory: Memory
    joins: Joins = field(default_factory=Joins)
    parts: list[Part] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    estimate: Estimate | None = None
    numbers: frozenset[str] = frozenset()

    def estimated(self, flops: int, flop_s: float, moved_bytes: int, target: Gpu) -> None:
        """Record the estimate of all parts together."""
        seconds = sum(part.seconds for part in self.parts)
        spilled = max((part.spill_bytes for part in self.parts), default=0)
        self.estimate = Estimate(seconds, flops, flop_s, moved_bytes, target.memory_bytes_s, spilled)

    def finish(self, kind: str) -> Emitted:
        functions, memory = [self._jit(part) for part in self.parts], self.memory
        form = f"INPUTS = {len(memory.inputs)}\nOUTPUTS = {len(memory.new_outputs)}"
        text = [
            *(self._constants(part, number) for number, part in enumerate(self.parts)),
            f"{form}\nSIZES = {len(memory.sizes)}\n# of launch's parameters",
            "\n".join(self.sizes),
            self.joins.text(),
            *self.helpers,
            *(_definition(p, jit, self.numbers) for p, jit in zip(self.parts, functions, strict=True)),
            self._launch(functions),
        ]
        return Emitted(self.name, self._text(text), tuple(functions), kind=kind, estimate=self.estimate)

    def finish_flat(self) -> Emitted:
        """Finish a kernel for any number of elements."""
        (part,) = self.parts
        read, made = self.memory.inputs, self.memory.new_outputs
        block, warps = part.constants["BLOCK"], part.num_warps
        constants = f"BLOCK = {block}\nINPUTS = {len(read)}\nOUTPUTS = {len(made)}"
        functions = flat.functions_text(part.name, [*read, *made], part.lines, warps)
        jits = flat.jits(part.name, [*read, *made], block, warps)
        return Emitted(self.name, self._text([constants, functions]), jits, flat=True)

    def _text(self, parts: Sequence[str]) -> str:
        """Return the whole module, with the imports that it needs."""
        head = HEAD.format(title=self.title)
        whole = "\n".join(parts)
        used = [text for name, text in HELPERS.items() if f"{name}(" in whole]
        body = "\n\n".join(part.strip("\n") + "\n" for part in (head, *used, *parts) if part)
        if "libdevice." not in body:
            body = body.replace("from triton.language.extra import libdevice\n", "")
        return body if "torch." in body else body.replace("import torch\n", "")

    def _constants(self, part: Part, number: int) -> str:
        return "\n".join(f"{self._constant(name, number)} = {n}" for name, n in part.constants.items())

    def _constant(self, name: str, number: int) -> str:
        return name if len(self.parts) == 1 else f"{name}_{number}"

    def _jit(self, part: Part) -> Jit:
        names = r"\b\w+\b(?!=[^=])"  # without those of keyword arguments
        used = set(re.findall(names, "\n".join(part.lines)))
        pointers = [p for p in self.memory.pointers if p.name in used]
        signature = {p.name: p.type for p in pointers} | {n: "i32" for n in self.memory.sizes if n in used}
        signature |= dict.fromkeys(part.integers, "i32") | dict.fromkeys(part.constants, "constexpr")
        aligned = tuple(p.name for p in pointers)
        sizes = tuple(n for n in self.memory.sizes if n in signature and n not in self.numbers)
        return Jit(part.name, signature, part.constants, aligned, part.num_warps, part.num_stages, sizes)

    def _launch(self, functions: Sequence[Jit]) -> str:
        memory = self.memory
        tensors = [p.argument for p in (*memory.inputs, *memory.new_outputs)]
        lines = [
            f"def launch({', '.join([*tensors, *memory.sizes])}):",
            '    """Starts the kernel: contiguous tensors, results last, then sizes."""',
        ]
        device = f"{tensors[0]}.device" if tensors else '"cuda"'
        lines += [f"    {line}" for line in (*(self._empty(w, device) for w in memory.works), *self.before)]
        given, loop = {p.name: p.argument for p in memory.pointers}, ""
        for number, (part, jit) in enumerate(zip(self.parts, functions, strict=True)):
            if part.loop not in ("", loop):
                lines.append(f"    {part.loop}")
            loop = part.loop
            indent = "        " if loop else "    "
            lines += [f"{indent}{line}" for line in part.before]
            grid = part.grid
            for name in part.constants:
                grid = re.sub(rf"\b{name}\b", self._constant(name, number), grid)
            values = [given.get(n, n) for n, type_ in jit.signature.items() if type_ != "constexpr"]
            values += [f"{name}={self._constant(name, number)}" for name in part.constants]
            lines.append(
                f"{indent}{part.name}[{grid}]({', '.join(values)}, num_warps={part.num_warps}, "
                f"num_stages={part.num_stages})"
            )
        return "\n".join(lines)

    def _empty(self, work: Work, device: str) -> str:
        shape = size_text(work.count, self.memory.sizes)
        if work.programs is not None:
            shape = f"{self._constant('PROGRAMS', work.programs)}, {shape}"
        dtype = DTYPES[work.pointer.element]
        return f"{work.pointer.argument} = torch.empty(({shape},), dtype={dtype}, device={device})"


def _definition(part: Part, jit: Jit, numbers: frozenset[str]) -> str:
    arguments = [
        f"{name}: tl.constexpr" if type_ == "constexpr" else name for name, type_ in jit.signature.items()
    ]
    head = f"def {part.name}({', '.join(arguments)}):"
    if len(head) > 110:
        head = f"def {part.name}(\n    {', '.join(arguments)},\n):"
    lines = [f"    {line}" for line in part.lines]
    plain = [name for name in jit.signature if name in numbers or name in part.integers]
    decorator = f"@triton.jit(do_not_specialize={plain!r})".replace("'", '"') if plain else "@triton.jit"
    return "\n".join([decorator, head, f'    """{part.comment}"""', *lines])
