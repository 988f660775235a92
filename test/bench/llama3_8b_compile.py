"""How long Llama-3-8B takes from the Python model to the emitted rank program, and in how much memory.

    python test/bench/llama3_8b_compile.py
    python test/bench/llama3_8b_compile.py --layers 32 --plans "data*tensor" --repeat 3

The user's own path is measured: ``shardc.compile_step`` on a model on the meta device, then the text of the
program that ``step(batch)`` would run. bf16, AdamW, sequence 8192, 2 sequences on each data rank, mesh data 8
x tensor 8. Each row is a process of its own (with ``--repeat``: the one with the median wall time); peak
memory is its maximum resident set. Wall seconds suffer from whatever else runs on the machine;
``--clock cpu`` counts this process's CPU seconds in every stage instead.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

LAYERS = (8, 16, 32, 64)
PLANS = ("data*tensor", "zero3*tensor", "zero3*sequence")
MESH = {"data": 8, "tensor": 8}
SEQUENCE, BATCH = 8192, 16


def measure(layers: int, plan: str, clock_name: str) -> dict[str, Any]:
    """Compile once, in this process. Seconds by stage, CPU seconds, bytes of memory and of program."""
    if clock_name == "cpu":
        # The compiler's own stage clock too: it must not be imported yet.
        time.perf_counter = time.process_time
    clock = [time.perf_counter()]
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import shardc
    from shardc.backends.torch.emit import emit_program

    clock.append(time.perf_counter())
    cpu = [time.process_time()]
    model = _model(layers, LlamaConfig, LlamaForCausalLM, torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.empty(BATCH, SEQUENCE, dtype=torch.int64, device="meta")
    step = shardc.compile_step(model, optimizer, {"input_ids": ids, "labels": ids}, mesh=MESH, plan=plan)
    clock.append(time.perf_counter())
    text = emit_program(step.compiled.program)
    clock.append(time.perf_counter())
    cpu.append(time.process_time())
    seconds = dict(step.compiled.seconds)
    total = clock[3] - clock[1]
    return {
        "layers": layers,
        "plan": plan,
        "seconds": seconds
        | {"emit": clock[3] - clock[2], "rest": clock[2] - clock[1] - sum(seconds.values())},
        "imports_s": clock[1] - clock[0],
        "total_s": total,
        "after_s": total - seconds["trace"] - seconds["import"],
        "cpu_s": cpu[1] - cpu[0],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "program_lines": text.count("\n"),
        "remarks": len(list(step.compiled.remarks)),
    }


def _model(layers: int, config: Any, model: Any, torch: Any) -> Any:
    """Llama-3-8B with so many layers, bf16, without storage."""
    shape = config(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=SEQUENCE,
        rope_theta=500000.0,
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            return model(shape)
    finally:
        torch.set_default_dtype(torch.float32)


def in_fresh_process(layers: int, plan: str, clock: str, repeat: int) -> dict[str, Any]:
    """The run with the median total of ``repeat`` runs."""
    runs = []
    for _ in range(repeat):
        command = [sys.executable, __file__, "--one", json.dumps([layers, plan, clock])]
        anew = {**os.environ, "SHARDC_STEP_CACHE": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=anew)
        if done.returncode:
            raise SystemExit(f"{layers} layers, {plan}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return sorted(runs, key=lambda r: r["total_s"])[(repeat - 1) // 2]


def show(runs: list[dict[str, Any]], clock: str) -> str:
    from machine import heading, table

    for run in runs:
        run["seconds"] = _by_stage(run["seconds"])
    stages = list(runs[0]["seconds"])
    columns = ["plan", "layers", *stages, "total s", "after import s", "CPU s", "peak GB", "lines"]
    rows = [
        [
            r["plan"],
            r["layers"],
            *(r["seconds"][s] for s in stages),
            r["total_s"],
            r["after_s"],
            r["cpu_s"],
            r["peak_bytes"] / 1e9,
            r["program_lines"],
        ]
        for r in runs
    ]
    return "\n".join(
        [heading(f"Llama-3-8B, data 8 x tensor 8: compile ({clock} seconds)"), table(columns, rows)]
    )


def _by_stage(seconds: dict[str, float]) -> dict[str, float]:
    """Passes without their options and dialect; those that ran twice together."""
    stages: dict[str, float] = {}
    for name, spent in seconds.items():
        short = name.partition("{")[0].removeprefix("dist-")
        stages[short] = stages.get(short, 0.0) + spent
    return stages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--layers", type=int, nargs="+", default=LAYERS, help="how many layers; default 8 16 32 64"
    )
    parser.add_argument("--plans", nargs="+", default=PLANS, help="presets and products of them")
    parser.add_argument("--repeat", type=int, default=1, help="processes for each row; the median counts")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="which seconds to count")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*json.loads(options.one))))
        return
    cases = [(n, plan) for plan in options.plans for n in options.layers]
    print(show([in_fresh_process(*case, options.clock, options.repeat) for case in cases], options.clock))


if __name__ == "__main__":
    main()
