"""Work on a Ray cluster.

A sweep has a task for each cell. The folders of runs and data must have one path on all machines. A fit has a task for
each learner.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from symloss import extras
from symloss.experiments.run import PATIENCE, Event, Events, Work, attempt


def run_on_ray(works: Iterable[Work], address: str, cpus: float = 1, gpus: float = 0, retries: int = 3) -> Events:
    """Train all works on a cluster. The address "auto" is the cluster that this machine belongs to.

    Each work has its CPUs and GPUs, and is retried if its process or machine is lost.
    """
    with _connected(address) as ray:
        task = ray.remote(attempt).options(num_cpus=cpus, num_gpus=gpus, max_retries=retries)
        pending = {task.remote(work, PATIENCE): work for work in works}
        for work in pending.values():
            yield Event("started", work)
        while pending:
            done, _ = ray.wait(list(pending), timeout=1.0)
            for reference in done:
                work = pending.pop(reference)
                try:
                    event: Event = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
                    event = Event("failed", work, reason=reason)
                yield event
                if event.disk_full:
                    for other in pending:
                        ray.cancel(other, force=True)
                    return


@contextlib.contextmanager
def joblib_on_ray(address: str) -> Iterator[None]:
    """Whatever joblib spreads over processes inside is spread over a cluster. "auto" is the one of this machine."""
    import joblib  # type: ignore[import-untyped]  # noqa: PLC0415

    with _connected(address):
        from ray.util.joblib import register_ray  # noqa: PLC0415

        register_ray()  # type: ignore[no-untyped-call]
        with joblib.parallel_config("ray"):
            yield


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Connect to a cluster, and yield the package ray. A connection that was there before stays."""
    with extras.needed_by("`ray`"):
        import ray  # noqa: PLC0415
    started_here = not ray.is_initialized()
    if started_here:
        _connect(ray, address)
    try:
        yield ray
    finally:
        if started_here:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    try:
        _knock(address)
        ray.init(address=address, logging_level="error", log_to_driver=False)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"`ray` must be the address of a running cluster, or auto; got {address!r} ({first}). If the cluster "
            "requires an authentication token, set RAY_AUTH_MODE=token, so that Ray sends the token in RAY_AUTH_TOKEN "
            "or ~/.ray/auth_token; `ray get-auth-token` prints it on the head node."
        ) from None


def _knock(address: str) -> None:
    """Check that the address answers. Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
