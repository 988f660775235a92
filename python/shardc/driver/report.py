"""What a compile tells the user: mesh, plan, memory, collectives, remarks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from shardc.diagnostics.base import Remark
from shardc.driver.manifest import edges
from shardc.driver.traffic import totals, transfers
from shardc.runtime.layout import Leaf
from shardc.runtime.mesh import Mesh as RuntimeMesh

ROLES = ("param", "opt_state", "buffer", "input")


@dataclass(frozen=True)
class Report:
    """A compiled step in words. ``shardings`` are (role, name, shape, layout, why)."""

    mesh: str
    plan: str
    shardings: list[tuple[str, str, str, str, str]]
    local_bytes: dict[str, int]
    traffic: list[tuple[str, str, str, int, float]]
    remarks: list[Remark]
    seconds: dict[str, float]

    def render(self) -> str:
        lines = [f"mesh {self.mesh}   plan {self.plan}", "", "bytes on each device"]
        lines += [f"  {role:<10} {_bytes(size):>10}" for role, size in self.local_bytes.items()]
        lines += ["", "collectives of a step, bytes that each device sends"]
        lines += [
            f"  {phase or '-':<10} {axes:<14} {kind:<15} {count:>5} x {_bytes(moved):>10}"
            for phase, axes, kind, count, moved in self.traffic
        ] or ["  none"]
        lines += ["", "shardings (layout of each dim; * = whole)"]
        lines += [f"  {count:>4} x {layout}" for layout, count in self._layouts()]
        if self.remarks:
            lines += ["", "remarks", *(f"  {r.render()}" for r in self.remarks)]
        if self.seconds:
            spent = ", ".join(f"{name} {s:.2f}" for name, s in self.seconds.items())
            lines += ["", f"compiled in {sum(self.seconds.values()):.2f} s ({spent})"]
        return "\n".join(lines)

    def _layouts(self) -> list[tuple[str, int]]:
        counts = Counter(f"{role:<10} {layout:<24} {why}" for role, _, _, layout, why in self.shardings)
        return sorted(counts.items(), key=lambda c: (-c[1], c[0]))

    __str__ = render


def make_report(
    rank_module: ir.Module, plan: str, remarks: list[Remark], seconds: dict[str, float] | None = None
) -> Report:
    """The report of a level-3 module."""
    mesh, leaves, whys = edges(rank_module)
    runtime_mesh = RuntimeMesh.read(mesh)
    shardings, sizes = [], dict.fromkeys(ROLES, 0)
    for entry, why in zip(leaves, whys, strict=True):
        if entry["role"] not in ROLES:
            continue
        leaf = Leaf.read(entry)
        local = leaf.local_shape(runtime_mesh)
        count = 1
        for size in local:
            count *= size
        sizes[leaf.role] += count * leaf.dtype.itemsize
        shardings.append((leaf.role, leaf.name, str(list(leaf.shape)), layout(entry["sharding"]), why))
    rows = [(phase, "+".join(axes), kind, n, moved) for (phase, axes, kind), (n, moved) in totals(transfers(rank_module)).items()]
    text = " x ".join(f"{a['name']} {a['size']}" + (" (time)" if a["kind"] == "time" else "") for a in mesh)
    return Report(text, plan, shardings, sizes, rows, remarks, seconds or {})


def layout(sharding: dict[str, Any]) -> str:
    """``[data, *]`` for dims over axes."""
    dims = ["+".join(name if pre == 1 else f"{name}/{pre}" for name, pre, _ in dim) or "*" for dim in sharding["dims"]]
    return f"[{', '.join(dims)}]"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError
