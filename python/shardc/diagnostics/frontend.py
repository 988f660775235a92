"""Errors of tracing a training step. Each names the op or object, the user's line and the fix."""

from typing import ClassVar

from shardc.diagnostics.base import ShardcError


class TraceFailed(ShardcError):
    """The step could not be traced into one graph, for a reason without an error class of its own.

    Fails: a forward that calls into NumPy, ``x.numpy()``. Works: the same computation with torch functions.
    """

    template = "the training step could not be traced: {reason}"
    hint = "{hint}"

    RUN_WITHOUT: ClassVar[str] = "see that model, batch and loss work together without shardc"
    REWRITE: ClassVar[str] = (
        f"{RUN_WITHOUT}; if they do, write this line with out-of-place torch functions on tensors"
    )


class DataDependent(ShardcError):
    """The value of a traced tensor determines which ops run, or how often.

    Fails: ``if x.sum() > 0: x = -x``. Works: ``x = torch.where(x.sum() > 0, -x, x)``. Numbers (``x /
    x.max().item()``) and rows (``x[mask]``) that depend on values are no error.
    """

    template = "{op} needs the values of a tensor while the step is being traced, when there are only shapes"
    hint = (
        "choose with torch.where or a mask instead of Python's `if`, and use loops with equal numbers of "
        "iterations in every step"
    )


class LibraryDataDependent(DataDependent):
    """An installed library branches on the value of a traced tensor, outside of the user's code.

    Fails: ``DetrEncoderLayer`` of ``transformers`` in training, which clamps non-finite values. Works: the
    same with ``layer.training = False`` set on each such layer, if its dropout is 0. Fails:
    ``LlavaNextForConditionalGeneration`` with ``image_sizes`` as a tensor. Works: as a list of numbers.
    """

    hint = (
        "if the branch is under `if self.training`, set training = False on that module (this also "
        "turns off its own dropout); if it reads sizes that the batch gives as a tensor, give them as"
        " Python numbers; otherwise replace the method by one without the branch before compiling"
    )


class SizeDependsOnValues(ShardcError):
    """An op reads a dim whose size depends on values, and shardc has no fixed-size form of the op.

    Fails: ``scores[scores > 0].sort()``. Works: elementwise ops, sums, products and writes of such rows.
    """

    template = (
        "{op} returns shape {shape}, whose size depends on values, and shardc has no fixed-size form of it"
    )
    hint = (
        "keep all rows, and mask out the unwanted ones where rows are combined, as in a sum, a mean or a loss"
    )


class SizeWithoutBound(ShardcError):
    """The largest number in a tensor determines the size of an op's result.

    Fails: ``torch.bincount(ids)``. Works: ``torch.nn.functional.one_hot(ids, 8).sum(0)``.
    """

    template = (
        "the largest value in the input of {op} determines the size of its result, and nothing bounds"
        " that value"
    )
    hint = (
        "state the number of bins: torch.nn.functional.one_hot(ids, bins).sum(0), or, with weights, "
        "torch.zeros(bins).index_add(0, ids, weights)"
    )


class CtcLoss(ShardcError):
    """A step calls PyTorch's CTC loss, which reads targets and lengths to allocate its memory.

    Fails: ``torch.nn.functional.ctc_loss(...)``. Works: the same within an operator of your own.
    """

    template = (
        "{op} reads the values of targets and lengths while the step is being traced, when there are "
        "only shapes"
    )
    hint = (
        "call it in an operator of your own: torch.library.custom_op with register_fake and "
        "register_autograd, and a sharding rule with shardc.rule (docs/guide/custom_operators.md)"
    )


class SparseGradient(ShardcError):
    """An embedding has a sparse gradient.

    Fails: ``nn.Embedding(9, 4, sparse=True)``. Works: ``nn.Embedding(9, 4)``.
    """

    template = "{op} makes a sparse gradient, but a step supports only dense tensors"
    hint = (
        "build the embedding with sparse=False; SGD and Adagrad then compute the same numbers; "
        "replace torch.optim.SparseAdam by an optimizer of dense gradients, such as Adam"
    )


class UninitializedParameter(ShardcError):
    """A parameter or buffer of a lazy module has no shape before the module's first call.

    Fails: ``compile_step`` on a fresh ``nn.LazyLinear(4)``. Works: the same after ``model(*batch)``.
    """

    template = "{name} of a lazy module has no shape yet"
    hint = "call the model on one batch, then build the optimizer, and then compile the step"


class UnsupportedRandomOp(ShardcError):
    """A random op cannot draw from the step's seed, so its numbers would depend on the mesh.

    Fails: ``torch.rand(3, generator=generator)``. Works: ``torch.rand(3)``; so do all random functions of
    torch and ``torch.distributions``.
    """

    template = "{op} draws random numbers in a way that cannot be tied to the step's seed{detail}"
    hint = (
        "use torch's public random functions, without a generator argument and without seeding inside"
        " the step; or pass the random numbers in with the batch"
    )


class PythonRandom(ShardcError):
    """The step draws random numbers outside of PyTorch; a compiled step would use the same in each call.

    Fails: ``x * random.random()``, ``numpy.random.rand()`` in a forward. Works: ``x * torch.rand(())``.
    """

    template = (
        "the step draws from {generator} here or just before, but every run of the compiled step "
        "would use the same numbers"
    )
    hint = "draw with torch.rand, torch.randn or torch.randint, or pass the numbers in with the batch"


class FrozenValue(ShardcError):
    """A step changes Python state that the next step reads; a compiled step never runs Python code again.

    Fails: ``self.calls += 1`` in a forward. Works: ``self.calls += 1`` where ``calls`` is a tensor that
    ``register_buffer`` holds. An attribute that only the first forward sets, such as a table, is no error.
    """

    template = (
        "the step changes Python state that the next step reads, which a compiled step cannot do: {changes}"
    )
    hint = (
        "keep changing values in tensors: buffers (register_buffer), which a step updates, or leaves "
        "of the batch; or compute them in the training loop"
    )


class UnsupportedOp(ShardcError):
    """The graph contains an op that writes to its inputs or has no form in the torch dialect.

    Fails: ``torch.histc(x)`` written with ``out=``. Works: the form that returns its result.
    """

    template = "op {op} has no functional form that shardc can import: {reason}"
    hint = "rewrite this line without the op, or wrap the op with torch.library.custom_op without mutation"


class BufferChangesShape(ShardcError):
    """The forward replaces a buffer by a tensor of another shape, so the next step would be another program.

    Fails: ``self.seen = torch.cat([self.seen, x])``. Works: ``self.seen[i] = x`` in a large buffer.
    """

    template = "buffer {name} has shape {before} before a step and {after} after it"
    hint = "give the buffer its final shape before the step, or make it a plain attribute that is not kept"


class UnsupportedDtype(ShardcError):
    """A tensor of the step has an element type that shardc does not support.

    Fails: ``x.to(torch.float8_e4m3fn)``. Works: ``x.to(torch.bfloat16)``.
    """

    template = "{name} has dtype {dtype}, which shardc cannot import"
    hint = (
        "convert it to bool, uint8, int8 to int64, float16, bfloat16, float32, float64, complex64 or "
        "complex128"
    )


class LossNotFound(ShardcError):
    """The model's output is not a loss and has no ``.loss``, and no ``loss=`` was given.

    Fails: ``compile_step(net, opt, (x,))`` where ``net`` returns logits.
    Works: ``compile_step(net, opt, (x, y), loss=torch.nn.functional.cross_entropy)``.
    """

    template = "there is no loss to differentiate: the model returned {output}"
    hint = "pass loss=fn, called as fn(output, batch), or put the labels in the batch if the model has a loss"


class LossNotScalar(ShardcError):
    """The loss is not one real floating-point number that depends on the parameters."""

    template = "the loss must be one floating-point number that depends on the parameters, but it is {loss}"
    hint = "reduce it with .mean() or .sum(), and compute it from the model's output without detaching it"


class BatchUnsupported(ShardcError):
    """The example batch has no tensor, or a value other than dense tensors and plain Python values."""

    template = "the batch cannot be an input of the step: {reason}"
    hint = "give it as a mapping, tuple or list of dense tensors (None, numbers and strings stay constant)"


class BatchNotTaken(ShardcError):
    """The model's forward has no parameter for a part of the batch, or a parameter that the batch lacks.

    Fails: ``{"x": x, "day": day}`` for ``forward(x)``; ``(x, y)`` for it without ``loss=``.
    Works: ``{"x": x}``; ``(x, y)`` with ``loss=torch.nn.functional.cross_entropy``.
    """

    template = "{forward} cannot be called with the batch: {problem}"
    hint = "{hint}"


class LossNotTaken(ShardcError):
    """A loss of the user's does not take two arguments: the model's output, and the batch or its target.

    Fails: ``loss=lambda output: output.sum()``.
    Works: ``loss=lambda output, batch: output.sum()``.
    """

    template = "the loss {loss} cannot be called as loss(output, batch): {problem}"
    hint = "give it two parameters: the model's output, and the batch, or the last part of (x, y)"


class BatchAmbiguous(ShardcError):
    """The signatures of the forward and the loss allow several readings of the batch.

    Fails: ``(x, y)`` for ``forward(x, mask=None)`` and ``loss(output, y)``. Works: ``(x, None, y)``; or
    ``loss(output, batch)`` where ``y`` is the mask; or a loss of PyTorch's, which takes no batch.
    """

    template = "the batch can be read in several ways: {what}"
    hint = "{hint}"


class HookUnsupported(ShardcError):
    """A gradient hook of a parameter that cannot be part of the step.

    Fails: ``self.weight.register_hook(f)`` in a forward. Works: the same once, after the model is built.
    """

    template = "a gradient hook of parameter {parameter} cannot be part of the step: {reason}"
    hint = "register it with register_hook or register_post_accumulate_grad_hook before the step is compiled"


class OptimizerUnsupported(ShardcError):
    """``optimizer.step()`` cannot run on traced tensors, as that of L-BFGS, which calls the model again."""

    template = "{optimizer}.step() cannot be traced: {reason}"
    hint = (
        "use an optimizer whose step() takes no closure and only does tensor arithmetic, such as AdamW or SGD"
    )


class OptimizerStateUnknown(ShardcError):
    """shardc does not know the initial state of an optimizer.

    Fails: a home-made optimizer that was never stepped. Works: the same after one eager ``optimizer.step()``.
    """

    template = "the initial value of {optimizer}'s state {state!r} is not known"
    hint = "run one eager step first, so that optimizer.state exists; keep changing state in tensors"


class OptimizerParameterUnknown(ShardcError):
    """The optimizer holds a tensor that is no parameter of the model, often because the model was copied."""

    template = (
        "parameter {index} of group {group} of {optimizer} (shape {shape}) is not a parameter of the model"
    )
    hint = (
        "build the optimizer from this model's parameters(), after the last .to() or copy that replaced them"
    )
