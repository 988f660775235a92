"""Errors of the command line: arguments, MLIR input, pipelines and their passes."""

from shardc.diagnostics.base import ShardcError


class BadMesh(ShardcError):
    """The text of ``--mesh`` is not a list of axes with sizes. Bad: ``data:2``. Good: ``data=2,tensor=2``."""

    template = "the mesh {mesh!r} can't be read: {problem}"
    hint = "give each axis a name and a size, such as --mesh data=2,tensor=2"


class NoCurrentFolder(ShardcError):
    """The current folder was deleted or replaced."""

    template = "the current folder no longer exists"
    hint = "change into a folder that exists"


class UnreadableInput(ShardcError):
    """The input file does not exist, or can't be read as UTF-8 text."""

    template = "can't read {file}: {problem}"
    hint = "name an MLIR text file, or - for standard input"


class UnwritableOutput(ShardcError):
    """The output file can't be written."""

    template = "can't write {file}: {problem}"
    hint = "name a file in a folder that exists and that you may write to"


class MalformedMlir(ShardcError):
    """The input is not valid MLIR: it does not parse, or an operation's verifier refuses it."""

    template = "{message}{snippet}"
    hint = (
        'correct the line; write ops of dist, pipe and kern in generic form: "dist.op"(%x) : (...) -> (...)'
    )


class WrongCall(ShardcError):
    """A pass failed on an invalid call: a dim does not exist, or the result's type has another shape."""

    template = "{op} is not a valid call: {problem}{snippet}"
    hint = "correct the call's operands, or the types of its results"


class BadPipeline(ShardcError):
    """The text of a pipeline has wrong punctuation. Bad: ``cse,func.func(cse``."""

    template = "the pipeline can't be read: {problem}{snippet}"
    hint = "write it as MLIR does: 'dist-propagate{{provenance=true}},cse,func.func(canonicalize)'"


class UnknownPass(ShardcError):
    """A name in a pipeline is neither a pass of shardc, nor a named pipeline, nor a pass of MLIR."""

    template = "there is no pass or pipeline {name!r}{nearest}"
    hint = "shardc opt --list-passes prints the names"


class NestedPass(ShardcError):
    """A pass of shardc or a named pipeline is nested in an anchor such as ``func.func(...)``."""

    template = "{name!r} works on the whole module and can't stand inside {anchor}(...)"
    hint = "move it to the top level of the pipeline"


class UnknownPassOption(ShardcError):
    """A pass was given an option that it does not have."""

    template = "the pass {pass_name!r} has no option {option!r}; it has: {known}"
    hint = "leave the option out; shardc opt --list-passes prints the options of each pass"


class BadPassOption(ShardcError):
    """An option's value is not of its type. Bad: ``max-iterations=few``. Good: ``max-iterations=4``."""

    template = "the pass {pass_name!r} can't take {option}={text!r}: it must be {expected}"
    hint = "give such a value; shardc opt --list-passes prints the options of each pass"


class BadMlirPass(ShardcError):
    """MLIR rejects a pass with these options."""

    template = "MLIR rejects {text!r}: {problem}"
    hint = "check the pass's options, and the ops that it runs on, in MLIR's documentation of passes"


class PassFailed(ShardcError):
    """A pass failed on this input and gave the reason."""

    template = "the pass {name!r} failed: {message}{snippet}"
    hint = "--print-ir-after-all prints the IR that the pass received"


class PassBrokeModule(ShardcError):
    """A pass produced IR that does not verify: a bug in the pass, not in the input."""

    template = "the pass {name!r} produced invalid IR: {message}{snippet}"
    hint = "this is a bug in shardc: please report it with the input; --print-ir-after-all shows the IR"
    exit_code = 3


class BadExpectation(ShardcError):
    """A comment looks like an ``expected-error`` but cannot be parsed."""

    template = "can't read the expectation {text!r}"
    hint = "write it as // expected-error@+1 {{{{part of the message}}}}"


class DiagnosticMismatch(ShardcError):
    """Under ``--verify-diagnostics`` the errors differ from those that the comments expect."""

    template = "the errors are not the expected ones\n{details}"
    hint = "correct the input's expected-error comments, or the code that raises the errors"
    exit_code = 1
