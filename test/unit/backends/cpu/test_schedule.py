"""Grouping of roots into nests and stages: shared reads, stored values, and barriers of threads."""

from bodies import Body, module_of
from programs import ADD, adamw, gelu_chain, layer_norm_backward, rms_norm, softmax
from torch_mlir import ir

from shardc.backends.body.axes import join_axes
from shardc.backends.body.extract import extract
from shardc.backends.body.read_graph import read_graph
from shardc.backends.body.roots import find_roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.emit import emit
from shardc.backends.cpu.emit.nests import find_nests
from shardc.backends.cpu.emit.stages import find_stages

_alive: list[ir.Module] = []  # roots point into their module


def schedule(body: Body):
    """Nests and the stages of each."""
    functions = extract(module_of(body))
    _alive.append(functions)
    (function,) = functions.body
    with functions.context, ir.Location.unknown():
        roots = find_roots(read_graph(function.operation))
        join_axes(roots)
        reads = {root: roots.reads(root) for root in roots.items}
        nests = find_nests(roots, reads)
        return nests, [find_stages(nest, roots, reads, Config()) for nest in nests]


def loops_of(body: Body) -> str:
    functions = extract(module_of(body))
    (function,) = functions.body
    with functions.context, ir.Location.unknown():
        module = ir.Module.create()
        emit(read_graph(function.operation), module)
        return str(module)


def test_softmax_runs_a_row_in_three_stages_and_keeps_the_exponentials():
    (nest,), (stages,) = schedule(softmax(40, 50))
    assert len(nest.rows) == 1 and not nest.split
    assert [len(stage) for stage in stages.stages] == [1, 1, 1]
    assert [len(loop.kept) for (loop,) in stages.stages] == [0, 1, 0]
    assert loops_of(softmax(40, 50)).count("math.exp") == 1


def test_rms_norm_keeps_nothing_because_it_is_cheap_to_make_again():
    (_,), (stages,) = schedule(rms_norm(40, 50))
    assert len(stages.stages) == 2
    assert not any(loop.kept for stage in stages.stages for loop in stage)


def test_sums_over_columns_join_the_nest_of_the_rows():
    (nest,), (stages,) = schedule(layer_norm_backward(40, 50))
    carried = [root for root in nest.roots if nest.carried(root)]
    assert len(nest.roots) == 5 and len(carried) == 2
    assert len(stages.stages) == 2
    assert loops_of(layer_norm_backward(40, 50)).count("GOMP_barrier") == 1


def test_pointwise_ops_of_one_shape_are_one_loop_cut_over_threads():
    body = Body("same")
    x, y = body.argument((4, 5, 6)), body.argument((4, 5, 6))
    body.results = [body.map([x, y], "%r = arith.addf %0, %1 : f32")]
    (nest,), _ = schedule(body)
    assert nest.split and len(nest.order) == 1 and set(nest.sizes.values()) >= {120}
    assert loops_of(body).count("scf.for") == 1


def test_a_broadcast_keeps_rows_apart():
    (nest,), _ = schedule(gelu_chain(40, 50))
    assert len(nest.rows) == 1 and not nest.split


def test_a_bias_over_the_last_dim_leaves_the_leading_dims_one_row_axis():
    body = Body("bias")
    x, b = body.argument((4, 5, 6)), body.argument((6,))
    body.results = [body.map([x, (b, "d2")], "%r = arith.addf %0, %1 : f32")]
    (nest,), _ = schedule(body)
    assert [nest.sizes[a] for a in nest.rows] == [20]


def test_a_short_reduction_of_long_rows_is_not_run_down_the_columns():
    body = Body("sum")
    body.results = [body.reduce([body.argument((64, 64))], ADD, [1], "0.0")]
    (nest,), _ = schedule(body)
    (root,) = nest.roots
    assert set(nest.rows) == root.parallel and not nest.carried(root)


def test_parameters_do_not_wait_for_each_other():
    nests, _ = schedule(adamw([(8, 8), (5,), (3, 3)]))
    assert len(nests) == 3 and not any(nest.waits for nest in nests)
    assert "GOMP_barrier" not in loops_of(adamw([(8, 8), (5,), (3, 3)]))


def test_a_transposed_read_is_tiled_and_turned():
    """Loops over tiles of rows and of columns, two over squares, two that copy edges, two that compute."""
    body = Body("transposed")
    x, y = body.argument((128, 256)), body.argument((256, 128))
    body.results = [body.map([x, (y, "d1, d0")], "%r = arith.addf %0, %1 : f32")]
    (nest,), _ = schedule(body)
    assert nest.transposed and len(nest.turned) == 1
    assert loops_of(body).count("scf.for") == 8


def test_what_is_a_result_anyway_is_not_kept_twice():
    """exp(x) is a result and is read again after its sum: from the result, not from a buffer of its own."""
    body = Body("twice")
    x = body.argument((30, 40))
    e = body.map([x], "%r = math.exp %0 : f32")
    s = body.reduce([e], ADD, [1], "0.0")
    body.results = [e, body.map([e, (s, "d0")], "%r = arith.divf %0, %1 : f32")]
    (_,), (stages,) = schedule(body)
    assert not any(loop.kept for stage in stages.stages for loop in stage)
    assert len(stages.again) == 1 and loops_of(body).count("math.exp") == 1


def test_what_reads_a_sum_over_rows_does_not_turn_its_loops():
    """A sum of a bf16 matrix's rows and its rounding: one column after the other would read a vector lane at
    a time.
    """
    body = Body("rounded_sum")
    total = body.reduce([(body.argument((256, 128)), "d0, d1")], ADD, [0], "0.0", shape=(256, 128))
    body.results = [body.map([total], "%r = arith.truncf %0 : f32 to bf16", "bf16")]
    (sums, rounded), _ = schedule(body)
    assert sums.carried(sums.roots[0]) and not rounded.roots[0].is_reduction


CHOOSE = """%i = linalg.index 1 : index
    %j = arith.index_cast %i : index to i64
    %zero = arith.constant 0 : i64
    %first = arith.cmpi eq, %j, %zero : i64
    %r = arith.select %first, %0, %1 : f32"""


def test_parts_are_written_out_inside_of_the_loop_that_all_results_share():
    """Of two concatenations of the same parts, the loops that number the parts meet in no tensor,
    but in the op itself.
    """
    body = Body("parts")
    x, y = body.argument((32, 16)), body.argument((32, 16))
    chosen = body.map([(x, "d0, d2"), (y, "d0, d2")], CHOOSE, shape=(32, 2, 16))
    made = [body.map([chosen], "%r = math.exp %0 : f32"), body.map([chosen], "%r = arith.negf %0 : f32")]
    merge = "tensor.collapse_shape {} [[0], [1, 2]] : tensor<32x2x16xf32> into {{type}}"
    body.results = [body.line(merge.format(m.name), (32, 32), "f32") for m in made]
    (nest,), _ = schedule(body)
    assert [nest.sizes[a] for a in nest.rows] == [32] and [nest.sizes[a] for a in nest.written_out] == [2]
    assert loops_of(body).count("scf.for") == 2


def test_parts_of_a_row_that_is_summed_are_written_out_in_their_order():
    body = Body("parts_summed")
    x, y = body.argument((32, 16)), body.argument((32, 16))
    chosen = body.map([(x, "d0, d2"), (y, "d0, d2")], CHOOSE, shape=(32, 2, 16))
    total = body.reduce([chosen], ADD, [1, 2], "0.0")
    body.results = [body.map([chosen, (total, "d0")], "%r = arith.divf %0, %1 : f32")]
    (nest,), _ = schedule(body)
    assert [nest.sizes[a] for a in nest.written_out] == [2]
    assert loops_of(body).count("scf.for") == 5  # rows, and for each stage a loop for each part


def test_rows_that_begin_with_another_tensor_are_read_along_their_elements():
    """The comparison that places the second part hides its address, not the loop along which it moves."""
    body = Body("placed")
    first, rest = body.argument((64,)), body.argument((64, 100))
    code = f"""%row = linalg.index 0 : index
    %at = linalg.index 1 : index
    %one = arith.constant 1 : index
    %zero = arith.constant 0 : index
    %back = arith.subi %at, %one : index
    %beyond = arith.cmpi slt, %back, %zero : index
    %place = arith.select %beyond, %zero, %back : index
    %x = tensor.extract {rest.name}[%row, %place] : {rest.type}
    %r = arith.select %beyond, %0, %x : f32"""
    joined = body.map([(first, "d0")], code, shape=(64, 101))
    body.results = [body.reduce([joined], ADD, [1], "0.0")]
    (nest,), _ = schedule(body)
    assert [nest.sizes[a] for a in nest.rows] == [64] and [nest.sizes[a] for a in nest.order[1:]] == [101]


def test_ops_that_are_the_same_for_all_steps_are_no_work_of_a_term():
    """A loop of sums is unrolled before it is made of vectors if a term is much work: addresses are none."""
    body = Body("fixed")
    x, w = body.argument((64, 200, 32)), body.argument((64, 200))
    fixed = [f"%g{n} = arith.addf %{f'g{n - 1}' if n else 1}, %1 : f32" for n in range(40)]
    code = [*fixed, "%t = arith.mulf %0, %g39 : f32", "%r = arith.addf %t, %acc fastmath<reassoc> : f32"]
    body.results = [body.reduce([x, (w, "d0, d1")], "\n".join(code), [1], "0.0")]
    assert "llvm.loop_annotation" in loops_of(body)


def test_many_parts_stay_a_loop():
    body = Body("many_parts")
    x, y = body.argument((8, 16)), body.argument((8, 16))
    body.results = [body.map([(x, "d0, d2"), (y, "d0, d2")], CHOOSE, shape=(8, 33, 16))]
    (nest,), _ = schedule(body)
    assert not nest.written_out


def test_the_last_loop_of_long_rows_fetches_what_the_next_row_reads_first():
    """The input, but not the weights, which every row reads;
    nothing where rows are short, or all of them in a cache.
    """
    body = rms_norm(4000, 600)
    (_,), (stages,) = schedule(body)
    assert [[value.position for value, _ in loop.ahead] for loop in stages.stages[-1]] == [[0], []]
    assert loops_of(body).count("memref.prefetch") == 1
    for other in (rms_norm(5000, 500), gelu_chain(4000, 600), rms_norm(40, 600)):
        assert "memref.prefetch" not in loops_of(other)


def test_dear_arithmetic_before_the_last_loop_fetches_the_next_row():
    """A softmax's exponentials, not its quotients; of a loss, whose rows write nothing, the sum of
    exponentials. The loop runs in pieces, though it adds up in a register.
    """
    (_,), (stages,) = schedule(softmax(4000, 600))
    assert [len(loop.ahead) for (loop,) in stages.stages] == [0, 1, 0]
    loops = loops_of(softmax(4000, 600))
    assert loops.count("memref.prefetch") == 1 and loops.count("scf.for") == 6
    body = Body("row_sums")
    x = body.argument((4000, 600))
    top = body.reduce([x], "%r = arith.maximumf %0, %acc : f32", [1], "0xFF800000")
    e = body.map([x, (top, "d0")], "%s = arith.subf %0, %1 : f32\n%r = math.exp %s : f32")
    body.results = [body.reduce([e], ADD, [1], "0.0")]
    (_,), (stages,) = schedule(body)
    assert [len(loop.ahead) for (loop,) in stages.stages] == [0, 1]
    assert loops_of(body).count("memref.prefetch") == 1


def test_a_sum_over_the_middle_fetches_nothing_for_the_loop_over_its_result():
    """That loop has no place along the dim that was summed."""
    body = Body("middle")
    total = body.reduce([body.argument((8, 512, 512))], ADD, [1], "0.0")
    body.results = [body.map([total], "%c = arith.constant 1.0 : f32\n%r = arith.addf %0, %c : f32")]
    (_,), (stages,) = schedule(body)
    assert len(stages.stages) == 2 and not any(loop.ahead for loop in stages.loops)
    assert "memref.prefetch" not in loops_of(body)


def test_a_sum_of_negated_terms_may_be_added_in_any_order():
    body = Body("negated")
    code = "%n = arith.negf %0 : f32\n%r = arith.addf %n, %acc : f32"
    body.results = [body.reduce([body.argument((40, 50))], code, [1], "0.0")]
    text = loops_of(body)
    assert "fastmath<reassoc>" in text and "arith.subf" not in text


def _weighted_total(body: Body) -> list:
    """A sum of all products by a column's weight, and the sum of weights."""
    x, w = body.argument((100, 90)), body.argument((90,))
    terms = body.map([x, (w, "d1")], "%r = arith.mulf %0, %1 : f32")
    rows = body.reduce([terms], ADD, [1], "0.0")
    return [body.reduce([rows], ADD, [0], "0.0"), body.reduce([w], ADD, [0], "0.0")]


def test_a_total_beside_a_sum_of_columns_does_not_read_across_rows():
    body = Body("weighted")
    body.results = _weighted_total(body)
    nests, _ = schedule(body)
    loops = [(nest.rows, nest.inner(root)) for nest in nests for root in nest.roots]
    assert all(nest.sizes[nest.order[-1]] == 90 for nest in nests if len(nest.order) == 2), loops
    (rows,) = (nest for nest in nests if len(nest.order) == 2)
    assert [rows.sizes[axis] for axis in rows.rows] == [100]


def _distances(body: Body, rows: int, work: str) -> list:
    x = body.argument((rows, 50))
    squares = body.map([x], "%r = arith.mulf %0, %0 : f32")
    total = body.reduce([squares], ADD, [1], "0.0")
    return [body.reduce([body.map([total], work)], ADD, [0], "0.0")]


def test_much_work_on_sums_of_short_rows_has_loops_of_its_own():
    dear = "%e = math.exp %0 : f32\n%l = math.log1p %e : f32\n%r = math.tanh %l : f32"
    for rows, work, count in ((400, dear, 2), (40, dear, 1), (400, "%r = math.sqrt %0 : f32", 1)):
        body = Body("distances")
        body.results = _distances(body, rows, work)
        nests, _ = schedule(body)
        assert len([nest for nest in nests if nest.order]) == count, (rows, work)
