"""Processes that need not import torch: they are forked from a server that has done it once."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

PRELOADED = (
    "symloss.cli", "symloss.training.run", "torch.utils.tensorboard", "symloss.experiments", "symloss.fit",
    "symloss.theory", "symloss.closed_form", "torch.distributed",
    "sklearn.datasets", "sklearn.kernel_ridge", "sklearn.linear_model", "sklearn.model_selection",
    "pytest", "typer._adapters", "pydantic.types", "rich._emoji_codes",  # typer and rich import these when used
    "optuna.storages._rdb.models", "alembic.command", "alembic.config", "alembic.migration",  # and Optuna these
)  # fmt: skip
"""Of these the ones that are not installed are left out."""


def forked_processes() -> Any:
    """As ``multiprocessing.get_context("spawn")``: processes as fresh, without the wait.

    All tests of a process have one server, and it imports what the first of them asked for. So all ask here.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def together(work: Callable[..., None], arguments: tuple[Any, ...]) -> dict[int, Any]:
    """What two processes put into their queue as (rank, answer). Each is called with rank, queue and the arguments."""
    context = forked_processes()
    answers = context.Queue()
    processes = [context.Process(target=work, args=(rank, answers, *arguments), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(timeout=60)
        process.kill()
    return found


def free_port() -> int:
    """A port of this machine at which nobody listens, for processes to meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
