"""TVM MetaSchedule on one matmul, in a separate process: ``tvm_matmul.py M K N TRIALS``; a line of JSON.

Needs apache-tvm 0.27.0.post1 and apache-tvm-ffi 0.1.14.post1 (newer ones crash it), installed without their
dependencies, and numpy, scipy, psutil, cloudpickle, ml_dtypes, typing_extensions, tornado, decorator, attrs,
xgboost:

    python -m venv tvm && tvm/bin/pip install --no-deps apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1

It has its own environment, because it is a peer of the benchmark alone. One thread.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

os.environ["TVM_NUM_THREADS"] = "1"

import numpy as np
import tvm  # pyright: ignore[reportMissingImports]
from tvm import te  # pyright: ignore[reportMissingImports]
from tvm.s_tir import meta_schedule  # pyright: ignore[reportMissingImports]

ROUNDS = 31
BUILD_S = 300
"""More than TVM's 30 s, which a loaded machine needs."""


def layer(m: int, k: int, n: int) -> object:
    """relu(x w + b), x [m, k], w [k, n]: TVM does better on it than on a weight that lies transposed."""
    x, w, b = (te.placeholder(s, name=name) for name, s in (("x", (m, k)), ("w", (k, n)), ("b", (n,))))
    term = te.reduce_axis((0, k), name="term")
    product = te.compute((m, n), lambda i, j: te.sum(x[i, term] * w[term, j], axis=term), name="product")
    made = te.compute((m, n), lambda i, j: te.max(product[i, j] + b[j], 0.0), name="made")
    return te.create_prim_func([x, w, b, made])


def main() -> None:
    m, k, n, trials = map(int, sys.argv[1:5])
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": 1}
    )
    function = layer(m, k, n)
    builder = meta_schedule.builder.LocalBuilder(timeout_sec=BUILD_S)
    runner = meta_schedule.runner.LocalRunner(timeout_sec=BUILD_S)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        database = meta_schedule.tune_tir(
            function,
            target,
            folder,
            max_trials_global=trials,
            num_trials_per_iter=min(64, trials),
            builder=builder,
            runner=runner,
        )
        wall_s = time.monotonic() - started
        schedule = meta_schedule.tir_integration.compile_tir(database, function, target)
    if schedule is None:
        raise SystemExit("TVM measured no candidate")
    made = tvm.compile(schedule.mod, target=target)["main"]
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n), (n,)))
    tensors = [tvm.runtime.tensor(a) for a in (x, w, b, np.zeros((m, n), np.float32))]
    made(*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), np.maximum(x @ w + b, 0), rtol=1e-3, atol=1e-2)
    seconds = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        made(*tensors)
        seconds.append(time.thread_time() - start)
    print(json.dumps({"wall_s": wall_s, "seconds": sorted(seconds)[ROUNDS // 2]}))


if __name__ == "__main__":
    main()
