"""The kernels that a training step is full of, as bodies: activations, softmax, norms, their backwards,
AdamW.
"""

from __future__ import annotations

from bodies import Body, T

NEGATIVE_INFINITY = "0xFF800000"
MUL = "%r = arith.mulf %0, %1 : f32"
ADD = "%r = arith.addf %0, %acc : f32"


def constants(code: str, **values: float) -> str:
    """``code`` after a line ``%name = arith.constant value : f32`` for each of ``values``."""
    return (
        "\n".join(f"%{name} = arith.constant {value:e} : f32" for name, value in values.items()) + "\n" + code
    )


def gelu_chain(rows: int, columns: int) -> Body:
    """gelu(x * w + b) + r, with erf."""
    body = Body("gelu_chain")
    x, w, b, r = (body.argument(s) for s in ((rows, columns), (columns,), (columns,), (rows, columns)))
    code = """%s = arith.mulf %0, %1 : f32
        %t = arith.addf %s, %2 : f32
        %u = arith.mulf %t, %root : f32
        %v = math.erf %u : f32
        %p = arith.addf %v, %one : f32
        %h = arith.mulf %t, %half : f32
        %g = arith.mulf %h, %p : f32
        %r = arith.addf %g, %3 : f32"""
    code = constants(code, root=0.7071067811865476, one=1.0, half=0.5)
    body.results = [body.map([x, (w, "d1"), (b, "d1"), r], code)]
    return body


def tanh_gelu_chain(rows: int, columns: int) -> Body:
    """gelu(x * w + b, approximate="tanh") + r."""
    body = Body("tanh_gelu_chain")
    x, w, b, r = (body.argument(s) for s in ((rows, columns), (columns,), (columns,), (rows, columns)))
    code = """%s = arith.mulf %0, %1 : f32
        %t = arith.addf %s, %2 : f32
        %t2 = arith.mulf %t, %t : f32
        %t3 = arith.mulf %t2, %t : f32
        %u = arith.mulf %t3, %cubic : f32
        %v = arith.addf %u, %t : f32
        %w = arith.mulf %v, %root : f32
        %th = math.tanh %w : f32
        %p = arith.addf %th, %one : f32
        %h = arith.mulf %t, %half : f32
        %g = arith.mulf %h, %p : f32
        %r = arith.addf %g, %3 : f32"""
    code = constants(code, root=0.7978845608028654, cubic=0.044715, one=1.0, half=0.5)
    body.results = [body.map([x, (w, "d1"), (b, "d1"), r], code)]
    return body


def softmax(rows: int, columns: int) -> Body:
    body = Body("softmax")
    x = body.argument((rows, columns))
    m = body.reduce([x], "%r = arith.maximumf %0, %acc : f32", [1], NEGATIVE_INFINITY)
    e = body.map([x, (m, "d0")], "%s = arith.subf %0, %1 : f32\n%r = math.exp %s : f32")
    s = body.reduce([e], ADD, [1], "0.0")
    body.results = [body.map([e, (s, "d0")], "%r = arith.divf %0, %1 : f32")]
    return body


def log_softmax(rows: int, columns: int) -> Body:
    body = Body("log_softmax")
    x = body.argument((rows, columns))
    m = body.reduce([x], "%r = arith.maximumf %0, %acc : f32", [1], NEGATIVE_INFINITY)
    e = body.map([x, (m, "d0")], "%s = arith.subf %0, %1 : f32\n%r = math.exp %s : f32")
    s = body.reduce([e], ADD, [1], "0.0")
    code = "%l = math.log %2 : f32\n%s = arith.subf %0, %1 : f32\n%r = arith.subf %s, %l : f32"
    body.results = [body.map([x, (m, "d0"), (s, "d0")], code)]
    return body


def softmax_backward(rows: int, columns: int) -> Body:
    """(dy - sum(dy * y)) * y."""
    body = Body("softmax_backward")
    dy, y = body.argument((rows, columns)), body.argument((rows, columns))
    s = body.reduce([dy, y], "%p = arith.mulf %0, %1 : f32\n%r = arith.addf %p, %acc : f32", [1], "0.0")
    code = "%d = arith.subf %0, %2 : f32\n%r = arith.mulf %d, %1 : f32"
    body.results = [body.map([dy, y, (s, "d0")], code)]
    return body


def _mean(body: Body, total: T, count: int) -> T:
    code = constants("%r = arith.divf %0, %n : f32", n=float(count))
    return body.map([total], code)


def layer_norm(rows: int, columns: int, eps: float = 1e-5) -> Body:
    """Results: y, mean, rstd."""
    body = Body("layer_norm")
    x, w, b = body.argument((rows, columns)), body.argument((columns,)), body.argument((columns,))
    mean = _mean(body, body.reduce([x], ADD, [1], "0.0"), columns)
    code = "%d = arith.subf %0, %1 : f32\n%q = arith.mulf %d, %d : f32\n%r = arith.addf %q, %acc : f32"
    variance = _mean(body, body.reduce([x, (mean, "d0")], code, [1], "0.0"), columns)
    rstd = body.map(
        [variance], constants("%s = arith.addf %0, %eps : f32\n%r = math.rsqrt %s : f32", eps=eps)
    )
    code = """%d = arith.subf %0, %1 : f32
        %n = arith.mulf %d, %2 : f32
        %s = arith.mulf %n, %3 : f32
        %r = arith.addf %s, %4 : f32"""
    body.results = [body.map([x, (mean, "d0"), (rstd, "d0"), (w, "d1"), (b, "d1")], code), mean, rstd]
    return body


def layer_norm_backward(rows: int, columns: int) -> Body:
    """Arguments dy, x, mean, rstd, w; results dx, dw, db."""
    body = Body("layer_norm_backward")
    dy, x = body.argument((rows, columns)), body.argument((rows, columns))
    mean, rstd, w = body.argument((rows,)), body.argument((rows,)), body.argument((columns,))
    normal = body.map(
        [x, (mean, "d0"), (rstd, "d0")], "%d = arith.subf %0, %1 : f32\n%r = arith.mulf %d, %2 : f32"
    )
    g = body.map([dy, (w, "d1")], MUL)
    sum_g = _mean(body, body.reduce([g], ADD, [1], "0.0"), columns)
    product = "%p = arith.mulf %0, %1 : f32\n%r = arith.addf %p, %acc : f32"
    sum_gn = _mean(body, body.reduce([g, normal], product, [1], "0.0"), columns)
    code = """%a = arith.subf %0, %1 : f32
        %b = arith.mulf %2, %3 : f32
        %c = arith.subf %a, %b : f32
        %r = arith.mulf %c, %4 : f32"""
    dx = body.map([g, (sum_g, "d0"), normal, (sum_gn, "d0"), (rstd, "d0")], code)
    dw = body.reduce([dy, normal], product, [0], "0.0")
    db = body.reduce([dy], ADD, [0], "0.0")
    body.results = [dx, dw, db]
    return body


def rms_norm(rows: int, columns: int, eps: float = 1e-6) -> Body:
    """Results: y, rstd."""
    body = Body("rms_norm")
    x, w = body.argument((rows, columns)), body.argument((columns,))
    total = body.reduce([x], "%q = arith.mulf %0, %0 : f32\n%r = arith.addf %q, %acc : f32", [1], "0.0")
    code = constants("%s = arith.addf %0, %eps : f32\n%r = math.rsqrt %s : f32", eps=eps)
    rstd = body.map([_mean(body, total, columns)], code)
    code = "%n = arith.mulf %0, %1 : f32\n%r = arith.mulf %n, %2 : f32"
    body.results = [body.map([x, (rstd, "d0"), (w, "d1")], code), rstd]
    return body


def rms_norm_backward(rows: int, columns: int) -> Body:
    """Arguments dy, x, rstd, w; results dx, dw."""
    body = Body("rms_norm_backward")
    dy, x = body.argument((rows, columns)), body.argument((rows, columns))
    rstd, w = body.argument((rows,)), body.argument((columns,))
    normal = body.map([x, (rstd, "d0")], MUL)
    g = body.map([dy, (w, "d1")], MUL)
    product = "%p = arith.mulf %0, %1 : f32\n%r = arith.addf %p, %acc : f32"
    mean = _mean(body, body.reduce([g, normal], product, [1], "0.0"), columns)
    code = "%a = arith.mulf %1, %2 : f32\n%b = arith.subf %0, %a : f32\n%r = arith.mulf %b, %3 : f32"
    dx = body.map([g, normal, (mean, "d0"), (rstd, "d0")], code)
    body.results = [dx, body.reduce([dy, normal], product, [0], "0.0")]
    return body


def adamw(shapes: list[tuple[int, ...]], lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.01) -> Body:
    """One step of AdamW of several parameters.

    Arguments: step (f32, rank 0), then for each parameter p, g, m, v; results p, m, v of each.
    """
    body = Body("adamw")
    step = body.argument(())
    parts = [[body.argument(s) for _ in range(4)] for s in shapes]
    power = (
        "%b = arith.constant {beta:.17e} : f32\n%p = math.powf %b, %0 : f32\n%o = arith.constant 1.0 : "
        "f32\n%r = arith.subf %o, %p : f32"
    )
    c1, c2 = (body.map([step], power.format(beta=b)) for b in (beta1, beta2))
    for p, g, m, v in parts:
        lerp = "%d = arith.subf %1, %0 : f32\n%s = arith.mulf %d, %w : f32\n%r = arith.addf %0, %s : f32"
        m2 = body.map([m, g], constants(lerp, w=1 - beta1))
        square = (
            "%a = arith.mulf %0, %b2 : f32\n%q = arith.mulf %1, %1 : f32\n%s = arith.mulf %q, %w : "
            "f32\n%r = arith.addf %a, %s : f32"
        )
        v2 = body.map([v, g], constants(square, b2=beta2, w=1 - beta2))
        update = """%pd = arith.mulf %0, %keep : f32
            %sq = math.sqrt %2 : f32
            %sc = math.sqrt %4 : f32
            %q = arith.divf %sq, %sc : f32
            %den = arith.addf %q, %eps : f32
            %st = arith.divf %lr, %3 : f32
            %n = arith.mulf %1, %st : f32
            %u = arith.divf %n, %den : f32
            %r = arith.subf %pd, %u : f32"""
        p2 = body.map([p, m2, v2, (c1, ""), (c2, "")], constants(update, keep=1 - lr * decay, lr=lr, eps=eps))
        body.results += [p2, m2, v2]
    return body
