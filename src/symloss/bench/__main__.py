"""Do one job of a benchmark in this process: ``python -m symloss.bench '{"what": "heads", "c": 50, "repeats": 1}'``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from symloss.bench.head_speed import time_heads, time_one_head
from symloss.bench.loss_speed import time_losses
from symloss.bench.token_heads import time_token_heads, token_head_errors, token_head_memory

JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "losses": time_losses,
    "heads": time_heads,
    "head": time_one_head,
    "token times": time_token_heads,
    "token memory": token_head_memory,
    "token errors": token_head_errors,
}


def do(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job that ``what`` names. All other entries are its arguments."""
    return JOBS[job["what"]](**{name: value for name, value in job.items() if name != "what"})


if __name__ == "__main__":
    print(json.dumps(do(json.loads(sys.argv[1]))))
