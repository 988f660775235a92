"""What a kept frame's trace may depend on without a guard of Dynamo's: a process where it is other traces again."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from shardc.driver.frames.codes import has_set_in_order
from shardc.driver.frames.content import Contents

pytestmark = pytest.mark.filterwarnings("error::shardc.diagnostics.dynamo.KeptFrameWarning")

IMPORTS = "import abc, collections, enum, functools, re\nimport torch\nfrom torch import nn\n"
MADE = "def f(x):\n    return x * C().g\n"
"""The class is made in the frame: what its methods read has no source to guard."""

SOURCES = {
    "value of an IntEnum": ("class M(enum.IntEnum):\n    A = 2\ndef f(x):\n    return x * M.A\n", "A = 2", "A = 3"),
    "look-up of an Enum": (
        "class M(enum.Enum):\n    A = 2\n    B = 3\ndef f(x):\n    return x * (5 if M(2) is M.A else 7)\n",
        "A = 2\n    B = 3",
        "A = 3\n    B = 2",
    ),
    "default of a method": (
        "class C:\n    def g(self, t={'a': 2.0}):\n        return t['a']\ndef f(x):\n    return x * C().g()\n", "2.0", "3.0",
    ),
    "default of __init__": (
        "class C:\n    def __init__(self, t=({'a': 2.0},)):\n        self.g = t[0]['a']\n" + MADE, "2.0", "3.0",
    ),
    "default of a static method": (
        "class C:\n    @staticmethod\n    def g(t={'a': 2.0}):\n        return t['a']\ndef f(x):\n    return x * C().g()\n",
        "2.0",
        "3.0",
    ),
    "default of __getattr__": (
        "class C:\n    def __getattr__(self, name, t={'a': 2.0}):\n        return t['a']\n" + MADE, "2.0", "3.0",
    ),
    "default of __enter__": (
        "class C:\n    def __enter__(self, t={'a': 2.0}):\n        return t['a']\n    def __exit__(self, *_):\n        pass\n"
        "def f(x):\n    with C() as c:\n        return x * c\n",
        "2.0",
        "3.0",
    ),
    "default of a property": (
        "class C:\n    @property\n    def g(self, t={'a': 2.0}):\n        return t['a']\n" + MADE, "2.0", "3.0",
    ),
    "closure of a property": (
        "def made(t):\n    return lambda self: t['a']\nclass C:\n    g = property(made({'a': [2.0]}))\n"
        "def f(x):\n    return x * C().g[0]\n",
        "2.0",
        "3.0",
    ),
    "list of a class in a closure": (
        "class K:\n    R = [2.0]\ndef made(K):\n    return lambda self: K.R[0]\nclass C:\n    g = property(made(K))\n" + MADE,
        "2.0",
        "3.0",
    ),
    "named tuple": (
        "N = collections.namedtuple('N', 'a')\nclass C:\n    g = property(lambda self, n=N([2.0]): n.a[0])\n" + MADE, "2.0", "3.0",
    ),
    "partial": (
        "def h(x, k):\n    return x * k\ndef made(p):\n    return lambda self, x: p(x)\nclass C:\n"
        "    g = made(functools.partial(h, k=2.0))\ndef f(x):\n    return C().g(x)\n",
        "2.0",
        "3.0",
    ),
    "pattern": (
        "class C:\n    g = property(lambda self, p=re.compile('a'): 2.0 if p.match('a') else 3.0)\n" + MADE,
        "compile('a')",
        "compile('b')",
    ),
    "order of a set": (
        "Z = set()\nfor i in (0, 8):\n    Z.add(i)\ndef f(x):\n    for z in Z:\n        x = (x + z) * (z + 1)\n    return x\n",
        "(0, 8)",
        "(8, 0)",
    ),
    "order of a frozenset": (
        "Z = frozenset((0, 8))\ndef f(x):\n    for z in Z:\n        x = (x + z) * (z + 1)\n    return x\n", "(0, 8)", "(8, 0)",
    ),
    "function that counts as constant": (
        "K = 2.0\n@torch._dynamo.assume_constant_result\ndef g():\n    return K\ndef f(x):\n    return x * g()\n", "2.0", "3.0",
    ),
    "method that counts as constant": (
        "K = 2.0\nclass C:\n    @torch._dynamo.assume_constant_result\n    def g(self):\n        return K\n"
        "def f(x):\n    return x * C().g()\n",
        "2.0",
        "3.0",
    ),
    "virtual subclass": (
        "class A(abc.ABC):\n    pass\nclass B:\n    pass\nA.register(int)\n"
        "def f(x, b=B()):\n    return x * (2 if isinstance(b, A) else 3)\n",
        "register(int)",
        "register(B)",
    ),
    "builtin that a global hides": ("#\ndef f(x):\n    return x * max(1.0, 2.0)\n", "#", "max = min"),
    "builtin that a global hides from another function": (
        "#\ndef g(x):\n    return x * max(1.0, 2.0)\ndef f(x):\n    return g(x)\n", "#", "max = min",
    ),
    "one object by two names": (
        "class K:\n    n = 0.0\na, b = K(), K()\n#\ndef f(x):\n    a.n += 1\n    b.n += 1\n    return x * a.n * b.n\n", "#", "b = a",
    ),
    "identity of objects": (
        "class K:\n    n = 2.0\na, b = K(), K()\n#\ndef f(x):\n    return x * a.n * (2 if a is b else 3)\n", "#", "b = a",
    ),
    "one list by two names": (
        "a, b = [1.0], [1.0]\n#\ndef f(x):\n    a.append(2.0)\n    return x * len(b)\n", "#", "b = a",
    ),
    "one dict by two names": (
        "a, b = {'a': 1.0}, {'a': 1.0}\n#\ndef f(x):\n    a['a'] = 3.0\n    return x * b['a']\n", "#", "b = a",
    ),
    "one module by two names": (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a, self.b = nn.Tanh(), nn.Tanh()\n"
        "    def forward(self, x):\n        return self.a(x) * (2 if self.a is self.b else 3)\nf = M()\n#\n",
        "#",
        "f.b = f.a",
    ),
    "a leaf": (
        "a = torch.ones(4, requires_grad=True)\n#\ndef f(x):\n    return x * a * (2 if a.is_leaf else 3)\n", "#", "a = a * 1",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The caches, and where the model's file is."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "shardc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def loaded(folder: Path, source: str) -> ModuleType:
    """The module of a source, as a new process would have it: the classes are made anew."""
    (folder / "content_model.py").write_text(IMPORTS + source)
    sys.modules.pop("content_model", None)
    importlib.invalidate_caches()
    return importlib.import_module("content_model")


def step(function: Any, x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(function, backend="shardc")(x)


@pytest.mark.parametrize("what", SOURCES)
def test_what_has_no_guard_is_compared(what: str, folder: Path) -> None:
    source, before, after = SOURCES[what]
    assert before in source
    x = torch.arange(1.0, 5.0)
    step(loaded(folder, source).f, x)
    was_kept = counters["shardc"]["frame_kept"]
    step(loaded(folder, source).f, x)
    assert counters["shardc"]["frame_hit"] == was_kept
    assert was_kept or "counts as constant" in what
    changed = source.replace(before, after)
    found = step(loaded(folder, changed).f, x)
    assert counters["shardc"]["frame_hit"] == 0
    torch.testing.assert_close(found, loaded(folder, changed).f(x))


def test_hooks_of_all_modules_are_not_passed_over() -> None:
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    step(model, x)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, y: y * 2)
    try:
        step(model, x)
        assert counters["shardc"]["frame_hit"] == 0
    finally:
        hook.remove()


ORDER = """
import torch
def f(x):
    for name in {"red", "green", "blue", "white"}:
        x = x * len(name) + 1
    return x
x = torch.ones(2)
torch.testing.assert_close(torch.compile(f, backend="shardc")(x), f(x))
"""


def test_a_set_of_texts_has_another_order_in_each_process(folder: Path) -> None:
    script = folder / "order.py"
    script.write_text(ORDER)
    for seed in "012":
        command = ["env", f"PYTHONHASHSEED={seed}", sys.executable, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_set_that_is_only_asked_is_no_reason() -> None:
    assert not has_set_in_order((lambda x: x in {"a", "b"}).__code__)
    assert has_set_in_order((lambda x: [y for y in {"a", "b"}]).__code__)


def test_methods_of_empty_objects_are_not_one() -> None:
    """Which object a builtin method is bound to is asked of one that counts as false, too."""
    with pytest.raises(Exception, match="of an object"):
        Contents().of("".join)
