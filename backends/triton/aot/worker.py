"""Job of a process that compiles Triton modules ahead of time. It needs only Triton, and no GPU."""

import itertools
import json
import re
import subprocess
from pathlib import Path

from shardc.runtime.python_file import imported_file

KEY = "key"
"""File beside a binary with Triton's key for it, which ``runtime.kernels.triton_kernels`` reads."""


def compile_module(asked: dict) -> list[dict]:
    """Return figures, and the ``binary`` (path), of every function of a module.

    ``asked``: ``path`` of the module, ``backend``, ``arch`` and ``warp_size`` of the target, and
    ``functions``, each a :class:`shardc.backends.triton.emit.emitted.Jit` as a dictionary.
    """
    from triton.backends.compiler import GPUTarget

    path = Path(asked["path"])
    module = imported_file(path.stem, path)
    target = GPUTarget(asked["backend"], asked["arch"], asked["warp_size"])
    return [
        compile_function(getattr(module, f["name"]), f, sizes, target)
        for f in asked["functions"]
        for sizes in variants(f)
    ]


def variants(form: dict) -> list[list[str]]:
    """Return the sizes that each binary assumes are multiples of 16: all subsets; of over 3, all or none."""
    sizes = form["sizes"]
    if len(sizes) > 3:
        return [sizes, []]
    cases = itertools.product((True, False), repeat=len(sizes))
    return [[name for name, whole in zip(sizes, case, strict=True) if whole] for case in cases]


def compile_function(function, form: dict, sizes: list[str], target) -> dict:
    """Compile one function with ``sizes`` that are multiples of 16; return its binary and its figures."""
    import triton
    from triton.compiler import ASTSource

    known = [*form["aligned"], *sizes]
    specialized = dict.fromkeys([*form["aligned"], *form["sizes"]])  # Triton's launch has [] for others
    places = {n: (function.arg_names.index(n),) for n in specialized}
    aligned = {place: [["tt.divisibility", 16]] if n in known else [] for n, place in places.items()}
    source = ASTSource(function, form["signature"], form["constants"], aligned)
    options = {"num_warps": form["num_warps"], "num_stages": form["num_stages"]}
    compiled = triton.compile(source, target=target, options=options)
    files = {Path(p).suffix[1:]: str(p) for p in compiled.metadata_group.values()}
    metadata, rest = Path(files["json"]), _key(source, target, options)
    said = {"triton": triton.__version__, "metadata": metadata.name, "rest": rest}
    (metadata.parent / KEY).write_text(json.dumps(said))
    extension = "cubin" if target.backend == "cuda" else "hsaco"
    figures = {"name": form["name"], "shared_bytes": compiled.metadata.shared, "num_warps": form["num_warps"]}
    figures |= {"aligned": sizes, "binary": files[extension], "metadata": files["json"]}
    return figures | (_nvidia(files) if target.backend == "cuda" else _amd(files))


def _key(source, target, options: dict) -> str:
    """Return Triton's cache key without the hash of Triton's own files, which differs between builds."""
    from triton.compiler.compiler import get_cache_invalidating_env_vars, make_backend
    from triton.runtime.cache import get_cache_key, triton_key

    backend = make_backend(target)
    key = get_cache_key(source, backend, backend.parse_options(options), get_cache_invalidating_env_vars())
    return key.removeprefix(triton_key())


def _nvidia(files: dict) -> dict:
    """Return registers and spilled bytes from the cubin, and instruction counts from the PTX."""
    from triton import knobs

    command = [knobs.nvidia.cuobjdump.path, "-res-usage", files["cubin"]]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {key: int(n) for key, n in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", said)}
    text, wide = Path(files["ptx"]).read_text(), r"\.global\S*\.(?:v4\.[bfu]32|v2\.[bfu]64|v8\.b32|v4\.b64)"
    return {
        "registers": found["REG"],
        "spill_bytes": found["STACK"] + found["LOCAL"],
        "local_accesses": len(re.findall(r"\b(?:ld|st)\.local\b", text)),
        "loads": len(re.findall(r"\bld\.global|\bcp\.async\.c", text)),
        "wide_loads": len(re.findall(rf"ld{wide}|cp\.async\.cg", text)),
        "stores": len(re.findall(r"\bst\.global", text)),
        "wide_stores": len(re.findall(f"st{wide}", text)),
        "matrix_ops": len(re.findall(r"\b(?:wgmma\.mma|mma\.sync|tcgen05\.mma)", text)),
    }


def _amd(files: dict) -> dict:
    """Return figures from the assembly's notes. Spills to memory are in the private segment."""
    text = Path(files["amdgcn"]).read_text()
    note = {key: int(n) for key, n in re.findall(r"^\s+\.(\w+):\s+(\d+)$", text, re.MULTILINE)}
    return {
        "registers": note["vgpr_count"],
        "spill_bytes": note["private_segment_fixed_size"],
        "local_accesses": len(re.findall(r"\bscratch_(?:load|store)", text)),
        "loads": len(re.findall(r"\b(?:global|buffer)_load_", text)),
        "wide_loads": len(re.findall(r"\b(?:global|buffer)_load_dwordx4", text)),
        "stores": len(re.findall(r"\b(?:global|buffer)_store_", text)),
        "wide_stores": len(re.findall(r"\b(?:global|buffer)_store_dwordx4", text)),
        "matrix_ops": len(re.findall(r"\bv_mfma", text)),
    }
