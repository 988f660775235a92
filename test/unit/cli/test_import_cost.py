"""Allowed imports at each stage of start-up, since every command pays their time."""

import subprocess
import sys

import pytest


def modules_after(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_importing_shardc_imports_neither_torch_nor_mlir() -> None:
    assert not {"torch", "torch_mlir", "numpy", "typer"} & modules_after("import shardc")


@pytest.mark.slow
def test_opt_imports_no_more_than_it_needs() -> None:
    # torch comes with the verifiers of our dialects, whose tensor types are torch's
    loaded = modules_after(
        "import io, sys\nfrom shardc.cli import main\n"
        "sys.stdin = io.StringIO('')\nassert main(['opt', '--cse']) == 0"
    )
    assert "torch_mlir" in loaded
    assert not {"transformers", "rich"} & loaded


def test_an_unknown_name_is_an_attribute_error() -> None:
    import shardc

    with pytest.raises(AttributeError, match="no attribute 'compile_stop'"):
        _ = shardc.compile_stop
    assert {"compile_step", "__version__"} <= set(dir(shardc))
