"""Errors in arguments that need no model are raised before torch and MLIR are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(__file__).parents[3] / "examples" / "llama.py")
COMPILE = ["compile", SCRIPT, "-o", "out", "--mesh"]
CODE = """import sys
from shardc.cli import main
code = main({arguments!r})
sys.exit(code if not {{"torch", "torch_mlir", "numpy"}} & {{*sys.modules}} else 99)"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [*COMPILE, "data=2", "--plan", "tensr"],
            "UnknownPreset: 'tensr' in plan 'tensr' is not a preset; did you mean",
        ),
        (
            [*COMPILE, "data"],
            "BadMesh: the mesh 'data' can't be read: the axis 'data' has no size\n  at: --mesh",
        ),
        ([*COMPILE, "data=2", "--schedule", "1f1b"], "NotAPipeline: plan 'data' has no pipeline"),
        (
            [*COMPILE, "pipe=2", "--plan", "pipeline", "--micro-batches", "4", "--schedule", "zbv"],
            "UnknownSchedule: there is no schedule 'zbv'; the nearest is 'zb-v'",
        ),
        ([*COMPILE, "data=2", "--target", "sm_89"], "UnknownTarget: there is no target 'sm_89'"),
        (
            [*COMPILE, "data=2", "--clip-grad-norm", "0"],
            "BadArgument: clip_grad_norm is 0.0, not a number above 0",
        ),
        ([*COMPILE, "data=2", "--forbid-fusion", "gelu"], "BadFusionEdge: 'gelu' is not a valid pair of ops"),
        ([*COMPILE, "data=2", "--clip", "1.0"], "OldSpelling: --clip is now spelled --clip-grad-norm"),
        ([*COMPILE, "data=2", "--memory=4e9"], "OldSpelling: --memory is now spelled --memory-limit-bytes"),
        ([*COMPILE, "data=2", "--numerics", "eager"], "OldSpelling: --numerics is now spelled --rounding"),
        (
            [*COMPILE, "data=2", "--matmuls", "measured"],
            "OldSpelling: matmuls='measured' is now spelled matmuls='auto'",
        ),
        (
            ["explain", SCRIPT, "--fusion", "--forbid", "a+b"],
            "OldSpelling: --forbid is now spelled --forbid-fusion",
        ),
        (
            ["explain", SCRIPT, "--fusion", "--force-fusion", "a"],
            "BadFusionEdge: 'a' is not a valid pair of ops",
        ),
        (
            ["schedule", "1f1b", "--microbatches", "8"],
            "OldSpelling: --microbatches is now spelled --micro-batches",
        ),
        (["schedule", "1f1b", "--memory", "8"], "OldSpelling: --memory is now spelled --memory-limit"),
        ([*COMPILE, "data=2", "--cluster", "h10"], "UnknownCluster: there is no cluster 'h10'; did you mean"),
        (
            [*COMPILE, "data=16", "--cluster", "h100"],
            "MeshDoesNotFit: the mesh data=16 has 16 devices, but cluster 'h100' has 8",
        ),
        (["schedule", "zbv"], "UnknownSchedule: there is no schedule 'zbv'"),
        (["tune", SCRIPT, "--target", "sm_89"], "UnknownTarget: there is no target 'sm_89'"),
    ],
)
def test_refused_before_torch(arguments: list[str], message: str) -> None:
    code = CODE.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[: len(message)]) == (2, message)
