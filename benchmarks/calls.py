"""Count how much of our own code runs.

    python benchmarks/calls.py

Counts the calls of functions of this package, and the files they are in: in the second call of a loss, where nothing is
prepared any more, and in one run of `symloss train`. Comprehensions don't count as functions. Both have a limit, since
a reader has to follow what runs; beyond it the script exits with 1.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType

import measure
import torch

import symloss

PACKAGE = Path(symloss.__file__).parent
COMPREHENSION = re.compile(r"<(listcomp|dictcomp|setcomp|genexpr)>")
# What a reader has to follow today, and a little more. Heads and scores share the code that a loss runs. A run with
# noisy labels is prepared (settings, presets, data, noise, the estimated time), trained, calibrated and written. Each
# of these has files of its own, 16 of losses and 13 of training among them: fewer would join what is read apart.
MOST_CALLS, MOST_FILES_OF_A_LOSS, MOST_FILES_OF_A_RUN = 38, 8, 54


def calls(action: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Count the calls of each function of ours, by (file, name), while the action runs."""
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # the bodies of modules and classes are not
        if event != "call" or not is_function or COMPREHENSION.fullmatch(code.co_name):
            return
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE):
            found[str(path.relative_to(PACKAGE)), code.co_qualname] += 1

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def of_a_loss() -> Counter[tuple[str, str]]:
    loss = symloss.SGCE(q=0.8)
    scores, labels = torch.randn(32, 10, requires_grad=True), torch.randint(10, (32,))
    loss(scores, labels)
    return calls(lambda: loss(scores, labels).backward())


def of_a_run() -> Counter[tuple[str, str]]:
    from symloss.cli import main  # noqa: PLC0415

    def train(folder: str) -> None:
        words = ["train", "--data", "digits", "--noise", "sym:0.4", "--loss", "sgce", "--epochs", "2", "--out", folder]
        sys.argv = ["symloss", *words]
        try:
            with redirect_stdout(StringIO()):
                main()
        except SystemExit as end:
            if end.code not in (None, 0):
                raise

    with tempfile.TemporaryDirectory() as folder:
        return calls(lambda: train(f"{folder}/run"))


def files(counted: Counter[tuple[str, str]]) -> list[str]:
    return sorted({path for path, _ in counted})


def main() -> None:
    measure.options(__doc__).parse_args()
    loss = of_a_loss()
    print("symloss.SGCE(q=0.8)(scores, labels), second call")
    for (path, name), number in loss.most_common():
        print(f"  {number:3} {path}: {name}")
    run = files(of_a_run())
    print("symloss train, files whose functions run")
    print("  " + ", ".join(run))
    print(f"{loss.total()} calls (at most {MOST_CALLS}) in {len(files(loss))} files (at most {MOST_FILES_OF_A_LOSS})")
    print(f"{len(run)} files in a run (at most {MOST_FILES_OF_A_RUN})")
    too_many = loss.total() > MOST_CALLS or len(files(loss)) > MOST_FILES_OF_A_LOSS or len(run) > MOST_FILES_OF_A_RUN
    sys.exit(1 if too_many else 0)


if __name__ == "__main__":
    main()
