"""``shardc run train.py --elastic N``: runs a script and restarts it when ranks are killed.

torchrun restarts as many ranks as it started (``--max-restarts``). A rank that was killed on its only machine
may have been one too many for it, so shardc restarts the script with fewer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from signal import SIGTERM

from shardc.cache.scratch import scratch
from shardc.commands.run import failure_of, rank_environment, torchrun
from shardc.diagnostics.runtime import TooFewRanks
from shardc.environment import ELASTIC, changed


def run_script(script: Path, nproc: int, arguments: Sequence[str] = (), elastic: int = 0) -> int:
    """Run ``script`` on ``nproc`` processes. Returns 0.

    When ranks are killed, the script starts again with that many fewer, up to ``elastic`` fewer in total. The
    script itself loads its last checkpoint and compiles for the processes that it finds.

    Raises TooFewRanks; RankFailed or RankRefused if a rank ended with an error of its own.
    """
    left = nproc
    while True:
        lost = _launch(script, left, arguments)
        if not lost:
            return 0
        left -= len(lost)
        if left < max(1, nproc - elastic):
            least = max(1, nproc - elastic)
            raise TooFewRanks(lost=", ".join(lost), left=max(left, 0), nproc=nproc, least=least)
        gone = ", ".join(lost)
        print(f"{gone}: {left} of {nproc} processes go on from the last checkpoint", file=sys.stderr)


def _launch(script: Path, nproc: int, arguments: Sequence[str]) -> list[str]:
    """Run the script once and describe the ranks that were killed; empty if all ended well.

    Raises RankFailed, RankRefused.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    whole = ["--standalone", "--nproc-per-node", str(nproc), str(script.absolute()), *arguments]
    ours = {name: text for name, text in rank_environment().items() if name != "PYTHONPATH"}
    with changed({**ours, ELASTIC.name: "1"}), scratch() as logs:
        try:
            torchrun(["--log-dir", logs, *whole])
        except ChildFailedError as error:
            # torchrun ends the other ranks by SIGTERM and counts them as failures
            killed = [f for f in error.failures.values() if f.exitcode < 0 and f.exitcode != -SIGTERM]
            first = error.get_first_failure()[1]
            if first.exitcode == -SIGTERM:
                killed = killed or [first]
            if not killed:
                raise failure_of(error) from None
            return [f"rank {f.local_rank} was killed by {f.signal_name()}" for f in killed]
    return []
