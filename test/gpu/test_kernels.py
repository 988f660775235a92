"""Every kernel family against eager PyTorch in f64, at sizes that cross masks."""

from __future__ import annotations

from pathlib import Path

import cases
import prepared
import pytest
import torch


@pytest.mark.parametrize("name", cases.CASES)
def test_values_are_those_of_eager(name: str) -> None:
    case, path = cases.CASES[name], prepared.folder() / "cases" / name
    if prepared.interprets() and not case.small:
        pytest.skip("too large for Triton's interpreter")
    failed = prepared.facts()["failed"]
    assert name not in failed, failed[name]
    if not (path / "program.py").is_file():
        pytest.skip(
            prepared.facts()["aten"].get(name) or f"{name} was left out of what was prepared (--only)"
        )
    run, _ = prepared.program(path)
    device = prepared.device()
    inputs = case.inputs(device)
    eager = case.results(*case.inputs(device))
    exact = case.results(*(x.double() if x.is_floating_point() else x for x in case.inputs(device)))
    for turn in range(3):  # the first launch goes through Triton, the others do not
        found = run([x.clone() for x in inputs])
        for number, (got, own, wanted) in enumerate(zip(found, eager, exact, strict=True)):
            assert got.dtype == own.dtype and got.shape == own.shape
            bound = case.tolerance()
            scale = max(1.0, wanted.abs().max().item())
            message = lambda text, at=(turn, number): f"call {at[0]}, result {at[1]}: {text}"  # noqa: E731
            torch.testing.assert_close(
                got.double(), wanted.double(), rtol=bound, atol=bound * scale, msg=message
            )
        if prepared.interprets():
            break


@pytest.mark.parametrize("name", ["softmax", "cross_entropy", "layer_norm_backward", "attention_backward"])
def test_equal_calls_give_equal_bits(name: str, gpu: torch.device) -> None:
    case, path = cases.CASES[name], prepared.folder() / "cases" / name
    if not (path / "program.py").is_file():
        pytest.skip(f"{name} was left out of what was prepared (--only)")
    run, _ = prepared.program(path)
    first, second = run(case.inputs(gpu)), run(case.inputs(gpu))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_nothing_is_compiled_here_that_was_compiled_there(
    gpu: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the prepared target, under the Triton that prepared it, the binaries are found, in a cache that was
    empty.
    """
    import triton

    facts = prepared.facts()
    major, minor = torch.cuda.get_device_capability()
    if facts["made_with"]["triton"] != triton.__version__ or facts["target"] != f"sm_{10 * major + minor}":
        pytest.skip(f"prepared by Triton {facts['made_with']['triton']} for {facts['target']}")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled: list[str] = []
    before = triton.knobs.compilation.listener
    triton.knobs.compilation.listener = lambda src, cache_hit, **_: (
        None if cache_hit else compiled.append(src.name)
    )
    try:
        for name in ("bias_gelu", "layer_norm", "matmul_gelu"):
            path = prepared.folder() / "cases" / name
            if (path / "program.py").is_file():
                prepared.program(path)[0](cases.CASES[name].inputs(gpu))
    finally:
        triton.knobs.compilation.listener = before
    assert not compiled
