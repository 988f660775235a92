"""Tasks of small kernels, of each structure that has a space."""

import sys
from pathlib import Path

from torch_mlir import ir

from shardc.backends.body.extract import extract_kernels, kernels
from shardc.backends.tuning.task import NAME, Task

sys.path.append(str(Path(__file__).parents[1] / "backends" / "cpu"))
from attention_kernels import Case, attention_module  # noqa: F401
from bodies import Body, module_of  # noqa: F401

ADD = "%r = arith.addf %0, %acc : f32"


def task(module: ir.Module, target: str = "cpu", threads: int = 1, number: int = 0) -> Task:
    """Of a kernel of ``module``."""
    functions = extract_kernels([kernels(module)[number]])
    (function,) = functions.body.operations
    with functions.context:
        function.operation.attributes["sym_name"] = ir.StringAttr.get(NAME)
    return Task(functions.operation.get_asm(enable_debug_info=False), target, threads)


def matmul(m: int, n: int, k: int, turned: bool = False, element: str = "f32") -> Body:
    """[m, k] times [k, n], or [n, k] transposed."""
    body = Body("product")
    x, w = body.argument((m, k), element), body.argument((n, k) if turned else (k, n), element)
    code = "%p = arith.mulf %0, %1 : f32\n%r = arith.addf %p, %acc : f32"
    if element != "f32":
        widen = "".join(f"%{name} = arith.extf %{at} : {element} to f32\n" for at, name in enumerate("ab"))
        code = widen + code.replace("%0, %1", "%a, %b")
    body.results = [
        body.reduce([(x, "d0, d2"), (w, "d1, d2" if turned else "d2, d1")], code, [2], "0.0", shape=(m, n, k))
    ]
    return body


def softmax(rows: int, columns: int) -> Body:
    body = Body("softmax")
    x = body.argument((rows, columns))
    top = body.reduce([x], "%r = arith.maximumf %0, %acc : f32", [1], "0xFF800000")
    weight = body.map([x, (top, "d0")], "%d = arith.subf %0, %1 : f32\n%r = math.exp %d : f32")
    total = body.reduce([weight], ADD, [1], "0.0")
    body.results = [body.map([weight, (total, "d0")], "%r = arith.divf %0, %1 : f32")]
    return body


def columns(rows: int, width: int) -> Body:
    body = Body("columns")
    body.results = [body.reduce([body.argument((rows, width))], ADD, [0], "0.0")]
    return body


def turned(rows: int, width: int) -> Body:
    body = Body("turned")
    x, y = body.argument((rows, width)), body.argument((width, rows))
    body.results = [body.map([x, (y, "d1, d0")], "%r = arith.addf %0, %1 : f32")]
    return body


def total(count: int) -> Body:
    body = Body("total")
    body.results = [body.reduce([body.argument((count,))], ADD, [0], "0.0")]
    return body


def pointwise(rows: int, width: int) -> Body:
    body = Body("pointwise")
    body.results = [body.map([body.argument((rows, width))], "%r = math.tanh %0 : f32")]
    return body
