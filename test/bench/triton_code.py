"""Every Triton kernel of the test models' training steps, compiled ahead of time for every target: registers,
spills, shared memory, and what is promised of the instructions. Needs no GPU.

    python test/bench/triton_code.py FOLDER [--targets sm_90,...] [--only llama,...] [--jobs 2] [--table
    docs/triton_code.md]

A program is fused twice: with all matmuls and attention in kernels (those of f32 in tf32), and as the models
of costs choose for the target. Equal kernels are compiled once. FOLDER keeps what was found: a second run
compiles what is new.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton
from torch_mlir import ir

ROOT = Path(__file__).parents[2]
sys.path += [str(Path(__file__).parent), str(ROOT / "test" / "unit" / "backends" / "triton")]

from contracts import CONTRACTS, violations  # noqa: E402
from triton_subjects import Subject, subjects  # noqa: E402

from shardc.backends.body.extract import kernel_name, kernels  # noqa: E402
from shardc.backends.triton.aot.compile import Compiled, compile_kernels  # noqa: E402
from shardc.backends.triton.emit.emit import emit_kernel  # noqa: E402
from shardc.backends.triton.emit.emitted import Emitted  # noqa: E402
from shardc.backends.triton.target import TritonTarget  # noqa: E402
from shardc.compiler.modelled_regions import ModelledRegions  # noqa: E402
from shardc.cost.machine import GPUS, Gpu, find_gpu  # noqa: E402
from shardc.diagnostics.base import ShardcError  # noqa: E402
from shardc.passes.fuse.grouping.capabilities import ALL  # noqa: E402
from shardc.passes.fuse.kern_fuse import fuse_module  # noqa: E402
from shardc.passes.manager.program import copy_module  # noqa: E402

KINDS = {
    "kern.attention": "attention",
    "kern.attention_backward": "attention, backward",
    "kern.linear_cross_entropy": "linear cross entropy",
    "kern.linear_cross_entropy_backward": "linear cross entropy, backward",
    "kern.grouped_matmul": "grouped matmul",
    "kern.scatter_add": "sum at computed indices",
}
"""By the op that a kernel's body holds; others by what the backend calls them."""
AT_ONCE = 24
"""Kernels that are compiled before what was found is written down."""


@dataclass(frozen=True)
class Made:
    """A kernel for a target. ``key``: equal ones have equal texts, but for their names."""

    subject: Subject
    kind: str
    emitted: Emitted
    target: Gpu

    @property
    def key(self) -> str:
        form = [asdict(replace(f, name=self._plain(f.name))) for f in self.emitted.functions]
        text = json.dumps([self._plain(self.emitted.text), form, self.target.name, self.subject.even])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _plain(self, text: str) -> str:
        text = re.sub(r'\A""".*?"""', "", text, flags=re.DOTALL)
        return re.sub(r"(?<!\w)" + re.escape(self.emitted.name), "kernel", text)


def kernels_of(subject: Subject, targets: Iterable[Gpu], refused: dict[str, str]) -> Iterator[Made]:
    """Those of a program. ``refused`` gets why others have no code."""
    module = subject.make()
    generated = fused(module, subject.lone, matmuls="generated")
    for target in targets:
        yield from emitted(subject, generated, target, True, refused)
        chosen = fused(module, subject.lone, matmuls=ModelledRegions(TritonTarget(target)))
        yield from emitted(subject, chosen, target, False, refused)


def fused(module: ir.Module, lone: bool, matmuls: Any) -> ir.Module:
    module = copy_module(module)
    fuse_module(module, lone=lone, matmuls=matmuls, capabilities=ALL)
    return module


def emitted(
    subject: Subject, module: ir.Module, target: Gpu, tf32: bool, refused: dict[str, str]
) -> Iterator[Made]:
    for name, op in {kernel_name(op): op for op in kernels(module)}.items():
        try:
            made = emit_kernel(op, target, tf32=tf32)
        except ShardcError as error:
            refused[f"{subject.name}, {target.name}, {name}"] = str(error).partition("\n")[0]
            continue
        yield Made(subject, kind_of(op, made), made, target)


def kind_of(kernel: ir.Operation, made: Emitted) -> str:
    names = [op.operation.name for op in kernel.regions[0].blocks[0].operations]
    said = next((KINDS[name] for name in names if name in KINDS), None)
    return said or ("optimizer" if made.flat else made.kind)


def found(made: Made, compiled: Compiled) -> dict[str, Any]:
    """What is kept of a kernel."""
    title = made.emitted.text.partition('"""')[2].partition('"""')[0]
    return {
        "key": made.key,
        "kind": made.kind,
        "target": made.target.name,
        "subject": made.subject.name,
        "title": " ".join(title.split()),
        "error": str(compiled.error or "").partition("\n")[0],
        "functions": [
            {n: v for n, v in asdict(f).items() if n not in ("binary", "metadata")}
            for f in compiled.functions
        ],
        "contracts": violations(compiled, whole=made.subject.even),
    }


def sweep(made: list[Made], known: dict[str, Any], file: Path, jobs: int) -> None:
    """Compiles what is not known, and adds it to ``known`` and ``file``."""
    new = list({m.key: m for m in made if m.key not in known}.values())
    for target in dict.fromkeys(m.target for m in new):
        of_target = [m for m in new if m.target is target]
        for first in range(0, len(of_target), AT_ONCE):
            some = of_target[first : first + AT_ONCE]
            named = [replace(m.emitted, name=f"{m.emitted.name}_{n}") for n, m in enumerate(some)]
            with tempfile.TemporaryDirectory() as folder:
                compiled = compile_kernels(named, [target], Path(folder), jobs)
            for m, c in zip(some, compiled, strict=True):
                known[m.key] = found(m, c)
                with file.open("a") as kept:
                    kept.write(json.dumps(known[m.key]) + "\n")


def table(
    rows: list[dict[str, Any]],
    refused: dict[str, str],
    names: list[str],
    targets: list[Gpu],
    counts: Counter[str],
) -> str:
    """The page: a row for each kind and target, and every violation."""
    of_targets = ", ".join(t.name for t in targets)
    said = [
        "# Kernels of the test models, compiled ahead of time",
        "",
        f"{date.today()}, Triton {triton.__version__}, torch {torch.__version__}, by "
        f"`test/bench/triton_code.py`. No GPU was needed, and none was used.",
        f"Targets: {of_targets}. Programs, of models their training step (forward, backward, AdamW): "
        f"{', '.join(names)}.",
        "*even* sizes are multiples of 16 bytes and fill a GPU, *odd* ones need every mask "
        "(`test/bench/triton_subjects.py`). Each is fused with all matmuls and attention",
        "in kernels (f32 as tf32) and as the models of costs choose for the target. Equal kernels count "
        "once.",
        "",
        "Registers, spills (bytes of a thread) and shared memory (bytes of a program) are the largest of "
        "the row. Contracts: kernels that keep them, of those that they are for:",
        "spills as priced: none, but in matmuls at most twice what their estimate has; matrix instructions "
        "in every product of bf16 and tf32; no local memory elsewhere (but for sines of huge arguments); "
        "pointwise kernels of even",
        "sizes store, and mostly load, 16 bytes a thread. Products may keep 16 bytes of a barrier's state "
        "on the stack, sines 48: no spills.",
        "",
        "| kind | target | kernels | functions | registers | spills | shared memory | spills as priced | "
        "matrix instructions | no local memory | 16 bytes |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in dict.fromkeys(sorted(r["kind"] for r in rows)):
        for target in GPUS:
            of = [r for r in rows if (r["kind"], r["target"]) == (kind, target)]
            functions = [f for r in of for f in r["functions"]]
            if not functions:
                continue
            most = [max(f[n] for f in functions) for n in ("registers", "spill_bytes", "shared_bytes")]
            kept = [_kept(of, c) for c in CONTRACTS if c not in ("shared memory", "registers")]
            cells = [kind, target, len(of), len(functions), *(f"{n:,}" for n in most), *kept]
            said.append(f"| {' | '.join(map(str, cells))} |")
    said += [
        "",
        f"{len(rows)} kernels ({sum(len(r['functions']) for r in rows)} binaries), {sum(counts.values())} "
        f"before equal ones were counted once.",
        "",
        "## Violations",
        "",
    ]
    lines = [
        f"- {r['target']}, {r['kind']}, {contract}: {'; '.join(broken)} ({r['subject']}: "
        f"{relative(r['title'])})"
        for r in rows
        for contract, broken in r["contracts"].items()
        if broken
    ]
    lines += [
        f"- {r['target']}, {r['kind']}: {r['error']} ({r['subject']}: {relative(r['title'])})"
        for r in rows
        if r["error"]
    ]
    lines += [f"- no code: {where}: {why}" for where, why in refused.items()]
    return "\n".join([*said, *(lines or ["None."])]) + "\n"


def relative(text: str) -> str:
    """A kernel's title whose path begins in the repository, whose checkout may lie anywhere, or in an
    installed package.
    """
    text = re.sub(r"(?<=From )/\S*/site-packages/", "", text)
    return re.sub(r"(?<=From )/\S*/(?=(?:test|python)/)", "", text)


def _kept(rows: list[dict[str, Any]], contract: str) -> str:
    under = [r for r in rows if contract in r["contracts"]]
    return f"{sum(not r['contracts'][contract] for r in under)} of {len(under)}" if under else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--targets", default=",".join(GPUS))
    parser.add_argument("--only", default="", help="words of programs' names: those that have one of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes that compile")
    parser.add_argument("--table", type=Path, help="the page that is written")
    options = parser.parse_args()
    targets = [find_gpu(name) for name in options.targets.split(",")]
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / "found.jsonl"
    known = {r["key"]: r for r in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    refused: dict[str, str] = {}
    used: dict[str, None] = {}
    counts: Counter[str] = Counter()
    names = []
    for subject in subjects():
        if options.only and not any(word in subject.name for word in options.only.split(",")):
            continue
        started = time.process_time()
        made = list(kernels_of(subject, targets, refused))
        made_s, before = time.process_time() - started, len(known)
        sweep(made, known, file, options.jobs)
        used |= dict.fromkeys(m.key for m in made)
        counts[subject.name] += len(made)
        names.append(subject.name)
        print(
            f"{subject.name}: {len(made)} kernels in {made_s:.0f} s of CPU, {len(known) - before} new",
            flush=True,
        )
    text = table([known[key] for key in used], refused, names, targets, counts)
    if options.table:
        options.table.write_text(text)
    print(text if not options.table else text.partition("## Violations")[2])


if __name__ == "__main__":
    main()
