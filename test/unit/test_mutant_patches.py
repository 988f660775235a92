"""Patches of ``test/mutants`` apply to the sources: an edit of their lines edits the patches, too."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "test" / "mutants").glob("*/*.patch"))


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the patches, and is not installed")
def test_each_patch_applies() -> None:
    assert len(PATCHES) > 50
    refused = []
    for patch in PATCHES:
        check = ["git", "apply", "--check", "-C1", str(patch)]
        if subprocess.run(check, cwd=ROOT, capture_output=True).returncode:
            refused.append(str(patch.relative_to(ROOT)))
    assert not refused, "edit these patches to the lines of the sources"
