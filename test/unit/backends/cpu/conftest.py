"""Tests of the CPU backend: kernels compiled into a cache of the test's own."""

import sys
from pathlib import Path

import pytest
import torch

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "passes/fuse")]


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Libraries of one run of the tests; nothing is found that another version of the code made."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SHARDC_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same numbers in every run."""
    torch.manual_seed(0)


@pytest.fixture(params=[1, 2], ids=["1thread", "2threads"])
def threads(request):
    """Runs a test with one thread, then with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
