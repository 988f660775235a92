"""Compiles what the tests and benchmarks of a GPU run, on a machine that has shardc and needs no GPU.

    python test/gpu/prepare.py out/gpu [--target sm_90] [--only NAME,...] [--bench]

``out/gpu`` then has, for every case of ``cases.py``, a program with its kernels, and artefacts of Llama's
training step; with ``--bench`` what ``test/bench/gpu`` measures, too. It goes with the checkout to a machine
with a GPU, torch and Triton: ``python test/gpu/run.py out/gpu``.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import triton
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "bench" / "gpu")]

import cases  # noqa: E402
import measured  # noqa: E402
import models  # noqa: E402

import shardc  # noqa: E402
from shardc.backends.body.extract import kernel_name, kernels  # noqa: E402
from shardc.backends.torch.emit_graph import emit_graph  # noqa: E402
from shardc.backends.triton.aot.folder import write_folder  # noqa: E402
from shardc.backends.triton.compile_module import try_kernels  # noqa: E402
from shardc.cost.machine import Gpu, find_gpu  # noqa: E402
from shardc.frontend.graph.aot_graph import import_graph  # noqa: E402
from shardc.passes.fuse.grouping.capabilities import ALL  # noqa: E402
from shardc.passes.fuse.kern_fuse import fuse_module  # noqa: E402
from shardc.runtime.check import MANIFEST  # noqa: E402

# Importing it defines ops that cases call.
from shardc.runtime.operators import linear_cross_entropy  # noqa: E402, F401

LIMIT_BYTES = 56 << 20
"""Of what travels, less the checkout."""
NOT_RUN = ("levels/", "batches.safetensors")
"""Files of an artefact that no test reads."""
STEPS = 4
"""Of training whose losses are kept, for artefacts to be held against."""
MESHES = {
    "llama": {"data": 1},
    "llama_2_ranks": {"data": 2},
    "llama_tensor": {"tensor": 2},
    "llama_pipeline": {"pipeline": 2},
}


def prepare_case(case: cases.Case, target: Gpu, folder: Path, processes: int = 1) -> str:
    """A program of all of the case's ops as kernels. Returns what stays ATen's and why, as the compiler does
    it, too; there is no program if nothing is a kernel.
    """
    inputs = [
        torch.empty(g.shape, dtype=g.dtype) for g in case.given
    ]  # programs say no device; nothing is touched
    traced = make_fx(case.results, tracing_mode="fake")(*inputs)
    count, said, without = len(traced.graph.output_node().args[0]), [], frozenset()
    while True:
        module = import_graph(traced, "forward").module
        fuse_module(module, lone=True, matmuls="generated", without=without, capabilities=ALL)
        made, errors = try_kernels(module, target, folder, processes)
        said += [str(error).partition("\n")[0] for error in errors.values()]
        gone = [op for op in kernels(module) if kernel_name(op) in errors]
        failed = frozenset(ir.StringAttr(call).value for op in gone for call in op.attributes["kern.calls"])
        if not failed - without:
            break
        without |= failed
    if made:
        write_folder(made, folder)
        (folder / "program.py").write_text(emit_graph(module, list(range(count))))
    return "; ".join(said)


def prepare_model(kind: str, size: models.Size, mesh: Mapping[str, int], target: str, folder: Path) -> None:
    """An artefact of a training step in f32, with the losses of eager training on this machine's CPU."""
    torch.manual_seed(0)
    model = models.build(kind, size)
    optimizer = models.optimizer_of(model)
    batches = [models.batch(kind, size, n) for n in range(STEPS)]
    (plan,) = mesh  # its one axis
    cut = {"micro_batches": 2} if plan == "pipeline" else {}
    shardc.compile_step(model, optimizer, batches[0], mesh=mesh, plan=plan, target=target, **cut).save(folder)
    strip(folder)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    folder.with_suffix(".json").write_text(json.dumps({"kind": kind, "mesh": dict(mesh), "losses": losses}))


def prepare_large(kind: str, size: models.Size, target: str, folder: Path) -> None:
    """An artefact without initial values, in bf16: those of the model that it is compared with."""
    with torch.device("meta"):
        model = models.build(kind, size).bfloat16()
    batch = {n: v.bfloat16() if v.is_floating_point() else v for n, v in models.batch(kind, size).items()}
    shardc.compile_step(model, models.optimizer_of(model), batch, mesh={"data": 1}, target=target).save(
        folder
    )
    strip(folder)


def strip(folder: Path) -> None:
    """Leaves an artefact what it is run with: the rest is most of its bytes."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in [name for name in manifest["files"] if name.startswith(NOT_RUN)]:
        (folder / name).unlink()
        del manifest["files"][name]
    shutil.rmtree(folder / "levels", ignore_errors=True)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--only", help="names of cases, models and benchmarks, separated by commas")
    parser.add_argument("--bench", action="store_true", help="what the benchmarks measure, too")
    parser.add_argument("--tiny", action="store_true", help="models fit for Triton's interpreter")
    options = parser.parse_args()
    folder, target = options.folder, find_gpu(options.target)
    shutil.rmtree(folder, ignore_errors=True)
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    aten: dict[str, str] = {}

    def run(name: str, work: Any) -> None:
        if options.only and name not in options.only.split(","):
            return
        started = time.perf_counter()
        try:
            if said := work():
                aten[name] = said
                print(f"{name}, in part ATen's: {said}", file=sys.stderr)
        except Exception as error:  # the others are to be had all the same; the run says what is missing
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"{name} failed: {failed[name]}", file=sys.stderr)
        seconds[name] = round(time.perf_counter() - started, 2)

    for name, case in cases.CASES.items():
        run(name, lambda case=case, name=name: prepare_case(case, target, folder / "cases" / name))
    small = models.TINY["llama"] if options.tiny else models.SMALL
    for name, mesh in MESHES.items():
        path = folder / "models" / name
        run(name, lambda mesh=mesh, path=path: prepare_model("llama", small, mesh, target.name, path))
    if options.bench:
        for name, case in measured.cases().items():
            run(name, lambda case=case, name=name: prepare_case(case, target, folder / "bench" / name))
        sizes = models.TINY if options.tiny else models.SIZES
        for name, size in sizes.items():
            run(
                f"whole_{name}", lambda n=name, s=size: prepare_large(n, s, target.name, folder / "whole" / n)
            )
    versions = {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    facts = {
        "target": target.name,
        "made_with": versions,
        "tiny": options.tiny,
        "seconds": seconds,
        "failed": failed,
    }
    facts["aten"] = aten
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prepared.json").write_text(json.dumps(facts, indent=1) + "\n")
    size_bytes = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"{folder}: {len(seconds)} prepared, {len(failed)} failed, {size_bytes / 2**20:.1f} MiB")
    if size_bytes > LIMIT_BYTES:
        raise SystemExit(
            f"more than {LIMIT_BYTES >> 20} MiB, which is what may travel; leave some out with --only"
        )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
