"""End of a worker's script: all ranks do their part, and the first reports it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import torch.distributed as dist


def run(part: Callable[[], None], said: str) -> NoReturn:
    """Ends the process: with ``said`` from rank 0 when every rank is through its ``part``, or with 1 and what
    failed here.
    """
    code = 0
    try:
        part()
        dist.barrier()
        if dist.get_rank() == 0:
            print(said, flush=True)
    except Exception:
        code = 1
        print(f"rank {os.environ['RANK']}: {traceback.format_exc()[-2500:]}", file=sys.stderr, flush=True)
    os._exit(code)
