"""The folder of a run: settings, noise, metrics of every epoch, checkpoints, result. Nothing is ever half-written."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from symloss import checks
from symloss.training.settings import Settings
from symloss.writing import said, write_whole

SETTINGS, DATA, METRICS = "settings.json", "data.json", "metrics.jsonl"
RESULT, FAILURE = "result.json", "failure.json"
FORMAT = 1
"""Of everything in a run's folder; it grows when an older version could misread a newer one's."""
CHECKPOINT, PREVIOUS, BEST = "checkpoint.pt", "checkpoint-previous.pt", "best.pt"


class Busy(ValueError):  # noqa: N818
    """Another process trains this run."""


class RunFolder:
    def __init__(self, path: Path | str):
        self.path = Path(path)

    def start(self, settings: Settings) -> None:
        """Make the folder, or refuse one that belongs to another run."""
        with said(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.settings() is None:
            with self.alone():  # two may start the same run at the same moment
                if self.settings() is None:
                    self.write(SETTINGS, {"format": FORMAT} | settings.to_dict())
        found = self.settings()
        assert found is not None
        if found != settings:
            ours, theirs = settings.to_dict(), found.to_dict()
            other = ", ".join(sorted(name for name in ours if theirs[name] != ours[name]))
            raise ValueError(
                f"{self.path} holds a run with other settings ({other}); choose another folder, or remove it"
            )

    def settings(self) -> Settings | None:
        """What the folder's run was started with; None if there is none."""
        found = self.read(SETTINGS)
        if found is None:
            return None
        written = found.pop("format", 0)
        if not isinstance(written, int):
            raise ValueError(f"{self.path / SETTINGS} must hold its format as a number; got {checks.brief(written)}")
        if written > FORMAT:
            raise ValueError(
                f"{self.path} was written by a newer version of symloss (format {written}, this one "
                f"knows {FORMAT}); update symloss, or choose another folder"
            )
        try:
            return Settings.from_dict(found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path / SETTINGS} holds no settings of a run; {error}") from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time; the lock goes with the process, however that ends."""
        with open(self.path / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{self.path} is being trained by another process; wait for it, or stop it") from None
            yield

    def read(self, name: str, needs: Iterable[str] = ()) -> dict[str, Any] | None:
        """What a file holds; None if there is none."""
        try:
            found = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{self.path / name} must hold JSON; {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{self.path / name} must hold a JSON object; got {checks.brief(found)}")
        for key in needs:
            if key not in found:
                raise ValueError(
                    f"{self.path / name} is damaged: it must hold {key!r}; got {checks.brief(sorted(found))}"
                )
        return found

    def write(self, name: str, data: dict[str, Any]) -> None:
        write_whole(self.path / name, (json.dumps(data, indent=2) + "\n").encode())

    def append_metrics(self, row: dict[str, Any]) -> None:
        with said(self.path / METRICS), open(self.path / METRICS, "a") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Every epoch that was written down; a line that a kill cut off is none."""
        try:
            lines = (self.path / METRICS).read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = []
        for line in lines:
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
        return rows

    def cut_metrics(self, epochs: int) -> None:
        """Forget what came after the checkpoint."""
        rows = [row for row in self.metrics() if row["epoch"] <= epochs]
        write_whole(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """The one before it is kept, in case this one turns out to be damaged."""
        new = self.path / (CHECKPOINT + ".new")
        write_whole(new, _packed(state))
        if (self.path / CHECKPOINT).exists():
            os.replace(self.path / CHECKPOINT, self.path / PREVIOUS)
        os.replace(new, self.path / CHECKPOINT)

    def save_best(self, state: dict[str, Any]) -> None:
        write_whole(self.path / BEST, _packed(state))

    def has_checkpoint(self) -> bool:
        return any((self.path / name).exists() for name in (CHECKPOINT, PREVIOUS))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last good one; None if there is none."""
        for name in (CHECKPOINT, PREVIOUS):
            path = self.path / name
            if not path.exists():
                continue
            try:
                return load_state(path)
            except ValueError as error:
                warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=2)
        return None


def _packed(state: dict[str, Any]) -> bytes:
    # In memory first: torch reports a full disk in a way of its own, Python as an OSError.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def load_state(path: Path) -> dict[str, Any]:
    """What was saved; tensors and plain values only, so that a file of somebody else's cannot run anything."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is no whole checkpoint ({reason})") from None
    if not isinstance(state, dict) or "model" not in state:
        raise ValueError(f"{path} is no whole checkpoint (it holds no model)")
    return state
