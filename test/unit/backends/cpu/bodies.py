"""Writes kernels as text: a small notation for ``linalg.generic`` bodies,
for tests and benchmarks of the CPU backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import torch
from torch_mlir import ir

from shardc.backends.cpu.compile import build_library
from shardc.dialects.context import new_context
from shardc.runtime.kernels.library import Library

NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i8",
    torch.int8: "i8",
}


@dataclass(frozen=True)
class T:
    """A tensor of a body: its SSA name, shape and element type (MLIR's name)."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{s}x' for s in self.shape)}{self.element}>"

    @property
    def vtensor(self) -> str:
        # A bool is a byte in memory.
        element = {"i8": "i1", "i32": "si32", "i64": "si64"}.get(self.element, self.element)
        return f"!torch.vtensor<[{','.join(map(str, self.shape))}],{element}>"


@dataclass
class Body:
    """One kernel under construction."""

    name: str
    arguments: list[T] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    results: list[T] = field(default_factory=list)
    config: str = ""
    numbers: count = field(default_factory=count)

    def argument(self, shape: tuple[int, ...], element: str = "f32") -> T:
        made = T(f"%a{len(self.arguments)}", tuple(shape), element)
        self.arguments.append(made)
        return made

    def map(
        self,
        operands: list[tuple[T, str] | T],
        code: str,
        element: str | None = None,
        dims: str = "",
        shape=None,
    ) -> T:
        """Pointwise. ``code`` has one op a line on ``%0``, ``%1``..., constants ``c(value)``, and ends in
        ``%r``.

        An operand is a tensor, or a tensor with the indices it is read at, such as ``"d1"`` or ``""``.
        """
        pairs = [o if isinstance(o, tuple) else (o, None) for o in operands]
        full = shape if shape is not None else next(t.shape for t, at in pairs if at is None)
        all_dims = [f"d{i}" for i in range(len(full))]
        reads = [(t, ", ".join(all_dims) if at is None else at) for t, at in pairs]
        return self._generic(
            reads, full, ["parallel"] * len(full), code, element or pairs[0][0].element, all_dims, None
        )

    def reduce(
        self,
        operands: list[tuple[T, str] | T],
        code: str,
        over: list[int],
        start: str,
        element: str = "f32",
        shape=None,
    ) -> T:
        """A reduction over the dims ``over``; ``code`` makes ``%r`` from ``%0``... and the accumulator
        ``%acc``.
        """
        pairs = [o if isinstance(o, tuple) else (o, None) for o in operands]
        full = shape if shape is not None else next(t.shape for t, at in pairs if at is None)
        all_dims = [f"d{i}" for i in range(len(full))]
        reads = [(t, ", ".join(all_dims) if at is None else at) for t, at in pairs]
        kinds = ["reduction" if i in over else "parallel" for i in range(len(full))]
        out = [d for i, d in enumerate(all_dims) if i not in over]
        return self._generic(reads, full, kinds, code, element, out, start)

    def _generic(self, reads, full, kinds, code, element, out, start) -> T:
        n = next(self.numbers)
        dims = ", ".join(f"d{i}" for i in range(len(full)))
        shape = tuple(full[int(d[1:])] for d in out)
        made = T(f"%v{n}", shape, element)
        self.lines.append(f"%e{n} = tensor.empty() : {made.type}")
        init = f"%e{n}"
        if start is not None:
            self.lines.append(f"%s{n} = arith.constant {start} : {element}")
            self.lines.append(
                f"%f{n} = linalg.fill ins(%s{n} : {element}) outs(%e{n} : {made.type}) -> {made.type}"
            )
            init = f"%f{n}"
        maps = ", ".join(
            f"affine_map<({dims}) -> ({at})>" for at in [*(at for _, at in reads), ", ".join(out)]
        )
        types = ", ".join(t.type for t, _ in reads)
        ins = f"ins({', '.join(t.name for t, _ in reads)} : {types})" if reads else ""
        arguments = ", ".join(
            [*(f"%x{i}: {t.element}" for i, (t, _) in enumerate(reads)), f"%acc: {element}"]
        )
        for i in reversed(range(len(reads))):
            code = code.replace(f"%{i}", f"%x{i}")
        self.lines.append(
            f"%v{n} = linalg.generic {{indexing_maps = [{maps}], iterator_types = "
            f"[{', '.join(repr(k) for k in kinds)}]}} {ins} outs({init} : {made.type}) {{\n^bb0({arguments}):\n".replace(  # noqa: E501
                "'", '"'
            )
            + code.strip()
            + f"\nlinalg.yield %r : {element}\n}} -> {made.type}"
        )
        return made

    def line(self, text: str, shape: tuple[int, ...], element: str) -> T:
        """Any other op: ``text`` follows the result's name, with ``{type}`` for the result's type."""
        made = T(f"%v{next(self.numbers)}", tuple(shape), element)
        self.lines.append(f"{made.name} = {text.replace('{type}', made.type)}")
        return made

    def text(self, function: str) -> str:
        """A function of this name around the kernel."""
        given = [f"%o{i}" for i in range(len(self.arguments))]
        parameters = ", ".join(f"{name}: {a.vtensor}" for name, a in zip(given, self.arguments, strict=True))
        ins, outs = _tuple(self.arguments), _tuple(self.results)
        packed = (
            f"%ins = torch.prim.TupleConstruct {', '.join(given)} : {_vtensors(self.arguments)} -> {ins}\n"
            if given
            else ""
        )
        results, types = ", ".join(r.name for r in self.results), ", ".join(r.type for r in self.results)
        lines, arguments = "\n".join(self.lines), ", ".join(f"{a.name}: {a.type}" for a in self.arguments)
        head = f"^bb0({arguments}):\n" if given else ""
        config = f", config = #kern.config<{{{self.config}}}>" if self.config else ""
        return (
            f"func.func @{function}({parameters}) "
            f'{{\n{packed}%k = "kern.kernel"({"%ins" if given else ""}) ({{\n{head}{lines}\n'
            f"%t = builtin.unrealized_conversion_cast {results} : {types} to tuple<{types}>\n"
            f'"kern.yield"(%t) : (tuple<{types}>) -> ()\n}}) {{kern.name = '
            f'"{self.name}"{config}}} : ({ins if given else ""}) -> {outs}\n'
            "return\n}\n"
        )


def _vtensors(tensors: list[T]) -> str:
    return ", ".join(t.vtensor for t in tensors)


def _tuple(tensors: list[T]) -> str:
    return f"!torch.tuple<{_vtensors(tensors).replace('!torch.', '')}>"


def module_of(*bodies: Body) -> ir.Module:
    """A module with one function for each body, in which its kernel stands."""
    with new_context(), ir.Location.unknown():
        return ir.Module.parse("\n".join(b.text(f"f{i}") for i, b in enumerate(bodies)))


def compiled(body: Body):
    """The kernel of ``body`` as a function of tensors."""
    dtypes = {name: dtype for dtype, name in NAMES.items() if dtype not in (torch.bool,)}
    outputs = [(r.shape, dtypes[r.element]) for r in body.results]
    return Library(build_library(module_of(body))).kernel(body.name, outputs)
