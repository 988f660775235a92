"""A wheel built from the tree, installed outside of it, runs the README's first commands.

``dialects``, ``passes`` and ``backends`` are links in the tree, which a wheel must hold as folders.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import readme
import torch

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "python", "dialects", "passes", "backends")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")
PLAN = """
import shardc
from train import build
model, optimizer, batch, loss = build()
mesh = {"data": 2, "tensor": 2}
print(shardc.compile_step(model, optimizer, batch, loss=loss, mesh=mesh, plan="zero3*tensor").plan)
"""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves a folder ``build`` beside what it reads."""
    copy, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = readme.ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=IGNORED)
        else:
            shutil.copy(source, copy / name)
    command = [*PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(target), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    [found] = target.glob("shardc-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it; what shardc depends on is found where torch lies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    command = [*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Folders named in a .pth file have no .pth files of their own: the tree's editable install stays unseen.
    (site / "dependencies.pth").write_text(str(Path(torch.__file__).parents[1]))
    return folder


def test_it_holds_every_source_and_what_is_read_at_run_time(wheel: Path) -> None:
    package = readme.ROOT / "python" / "shardc"
    files = {p.relative_to(package).as_posix() for p in package.rglob("*") if _belongs(p)}
    for linked in ("dialects", "passes", "backends"):
        files |= {
            p.relative_to(readme.ROOT).as_posix() for p in (readme.ROOT / linked).rglob("*") if _belongs(p)
        }
    held = {n.removeprefix("shardc/") for n in zipfile.ZipFile(wheel).namelist() if n.startswith("shardc/")}
    assert held == files


def test_it_carries_the_license(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [info] = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    assert "License-Expression: Apache-2.0 WITH LLVM-exception" in archive.read(f"{info}/METADATA").decode()
    assert archive.read(f"{info}/licenses/LICENSE").decode() == (readme.ROOT / "LICENSE").read_text()


def test_the_readme_runs_outside_of_the_tree(environment: Path, tmp_path: Path) -> None:
    for name, text in readme.files().items():
        (tmp_path / name).write_text(text)
    place = readme.run(
        "python -c 'import shardc.passes; print(shardc.passes.__file__)'", tmp_path, environment / "bin"
    )
    assert Path(place.strip()).is_relative_to(environment)
    printed = [readme.run(command, tmp_path, environment / "bin") for command in readme.commands()]
    assert "bytes on each device" in printed[0] and "equal to the single-device program" in printed[1]
    assert "plan zero3*tensor" in readme.run(f"python -c '{PLAN}'", tmp_path, environment / "bin")


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
