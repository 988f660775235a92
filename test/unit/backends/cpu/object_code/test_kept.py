"""Reuse of machine code within a process: libraries with other kernels contain it, too."""

import pytest
import torch
from bodies import NAMES, Body, module_of

from shardc.backends.cpu import compile as compiler
from shardc.backends.cpu.compile import build_library
from shardc.backends.cpu.host import target
from shardc.backends.cpu.object_code import kept, link
from shardc.runtime.kernels.library import Library

pytestmark = pytest.mark.skipif(link.system_linker() is not None, reason="a linker of the system links here")


def pointwise(operation: str, name: str, count: int = 40) -> Body:
    body = Body(name)
    body.results = [body.map([body.argument((count,))], f"%r = {operation} : f32")]
    return body


def negate(name: str, count: int = 40) -> Body:
    return pointwise("arith.negf %0", name, count)


def double(name: str) -> Body:
    return pointwise("arith.addf %0, %0", name)


def square(name: str) -> Body:
    return pointwise("arith.mulf %0, %0", name)


@pytest.fixture
def made(monkeypatch, tmp_path):
    """The names of the kernels of each object file that is made, in a cache of the test's own."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    names, make = [], compiler._object_of

    def counted(functions, *more):
        names.append([kept._name(function) for function in functions])
        return make(functions, *more)

    monkeypatch.setattr(compiler, "_object_of", counted)
    return names


def results(*bodies: Body, x: torch.Tensor) -> list[torch.Tensor]:
    library = Library(build_library(module_of(*bodies)))
    dtypes = {name: dtype for dtype, name in NAMES.items() if dtype != torch.bool}
    outputs = [[(r.shape, dtypes[r.element]) for r in body.results] for body in bodies]
    return [library.kernel(body.name, of)(x)[0] for body, of in zip(bodies, outputs, strict=True)]


def test_a_kernel_under_another_name_is_not_compiled_again(made):
    x = torch.randn(40)
    assert torch.equal(*results(negate("measured_0"), x=x), -x)
    first, second, third = results(square("a_0"), negate("b_1"), double("c_2"), x=x)
    assert made == [["measured_0"], ["a_0", "c_2"]]
    assert torch.equal(first, x * x) and torch.equal(second, -x) and torch.equal(third, x + x)
    a, b = results(double("d_0"), negate("e_1"), x=x)
    assert len(made) == 2, "both are known, from two object files"
    assert torch.equal(a, x + x) and torch.equal(b, -x)


def test_two_names_of_one_body_are_compiled_once(made):
    x = torch.randn(40)
    first, second = results(negate("a_0"), negate("b_1"), x=x)
    assert made == [["a_0"]]
    assert torch.equal(first, -x) and torch.equal(second, -x)


def test_a_library_of_several_objects_has_the_names_that_it_is_asked_for(made, tmp_path):
    build_library(module_of(negate("a_0"), square("b_1")))
    path = build_library(module_of(square("c_0"), double("d_1")))
    library = Library(path)
    content = path.read_bytes()
    assert library.kernel("c_0", [((40,), torch.float32)]) and target().encode() in content
    assert b"\0c_0\0" in content and b"\0d_1_info\0" in content
    assert b"\0a_0\0" not in content, "what no name of the library is for cannot be looked up"


@pytest.mark.parametrize("other", ["size", "target"])
def test_what_differs_is_compiled(made, other, monkeypatch):
    build_library(module_of(negate("a_0")))
    if other == "target":
        # a part of this machine's: what the code may use is another thing
        monkeypatch.setattr(compiler, "target", lambda: f"{target()} ")
    build_library(module_of(negate("b_0", 41 if other == "size" else 40)))
    assert made == [["a_0"], ["b_0"]]


def test_the_oldest_goes_first(made, monkeypatch):
    monkeypatch.setattr(kept, "MOST", 2)
    for body in (negate("a_0"), square("b_0"), negate("c_0", 40), double("d_0")):
        build_library(module_of(body))
    assert made == [["a_0"], ["b_0"], ["d_0"]]
    build_library(module_of(negate("e_0"), square("f_1")))
    assert made[3:] == [["f_1"]], "negate was used after square"
