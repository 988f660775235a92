"""Worker process that generates machine code for ``object_code.py``: ``worker.py OPENMP PATH...`` (sys.path).

Each line of its input names a folder. It compiles ``loops.mlir`` and ``entries.mlir`` there to ``kernels.o``,
for this host without the features in ``without.txt``. Output of MLIR and LLVM goes to ``said.txt``. The
answer is a line: empty, or why there is no object file. It ends with its input, or after being idle for a
while.
"""

import os
import select
import sys
from pathlib import Path

OPTIMIZATION_LEVEL = 3
IDLE_S = 60


def main(openmp: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # printed text must not be taken for an answer
    asked = os.fdopen(0, "rb", buffering=0)
    while select.select([asked], [], [], IDLE_S)[0] and (line := asked.readline()):
        folder = Path(os.fsdecode(line.removesuffix(b"\n")))
        with (folder / "said.txt").open("wb") as said:
            os.dup2(said.fileno(), 2)
        print(make(folder, openmp), file=answers)


def make(folder: Path, openmp: str) -> str:
    """Write ``kernels.o`` in the folder; return why it failed, or an empty text."""
    from torch_mlir import ir
    from torch_mlir.execution_engine import ExecutionEngine

    from shardc.backends.cpu.object_code.lower import lower

    with ir.Context():
        try:
            module = ir.Module.parse((folder / "loops.mlir").read_bytes())
            lower(module, (folder / "entries.mlir").read_text(), (folder / "without.txt").read_text())
        except ir.MLIRError as error:
            return " ".join(str(error).split())
        level = OPTIMIZATION_LEVEL
        engine = ExecutionEngine(module, level, [openmp], enable_pic=True)  # pyright: ignore[reportCallIssue]
        engine.dump_to_object_file(str(folder / "kernels.o"))  # raises no error if LLVM fails
    return "" if (folder / "kernels.o").exists() else "LLVM made no object file"


if __name__ == "__main__":
    sys.path[1:1] = sys.argv[2:]
    main(sys.argv[1])
