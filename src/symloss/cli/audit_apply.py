"""``symloss audit --apply``: corrected copies. The originals are never touched."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from symloss.writing import without_formula

if TYPE_CHECKING:
    from symloss.data.dataset import Origin
    from symloss.fit.audit.scores import Audit
    from symloss.fit.saved_audit import LabelSource

MOVES = "moves.csv"


def refuse_choice(chosen: list[str], apply: bool) -> None:
    """Raise ValueError unless ``--apply`` comes with one of the options that say which suggestions are meant."""
    if chosen and not apply:
        raise ValueError(f"`{chosen[0]}` requires `--apply`.")
    if apply and len(chosen) != 1:
        given = " and ".join(chosen) or "neither"
        raise ValueError(
            "--apply needs one of --decisions FILE (what you accepted on the page), --above P (suggestions that are "
            f"right with at least this probability) and --all (every suggestion); got {given}"
        )


def effect(audit: Audit, labels: dict[int, str]) -> str:
    """What the corrections are expected to do, in words."""
    from symloss.fit.audit.export import expected_effect

    mended, broken = expected_effect(audit, labels)
    return (
        f"{len(labels):,} labels are changed. By the model's own probabilities, that mends about {mended:.0f} and "
        f"breaks about {broken:.0f}."
    )


def target(source: LabelSource, out: Path, overwrite: bool) -> Path:
    """The file that will be written into a folder: the corrected table, or the moves of image files."""
    from symloss.data.source import TABLES
    from symloss.training.settings import displayed_noise

    name, data = source.source.data, Path(source.source.data)
    own = not source.source.is_published
    is_table = own and data.suffix.lower() in TABLES and data.is_file()
    if not is_table and not (own and data.is_dir()):
        raise ValueError(f"--apply must be for a table or a folder of images of your own; got {name}")
    if source.noise != "clean":
        raise ValueError(
            "--apply must be for labels as they are in the data; got a run that added noise to them, "
            f"{displayed_noise(name, source.noise)}"
        )
    path = out / (data.with_stem(f"{data.stem}-corrected").name if is_table else MOVES)
    if path.exists() and not overwrite:
        raise ValueError(f"--apply must not overwrite what is there without --overwrite; got {path}, which exists")
    return path


def write_corrected(source: LabelSource, origin: Origin, labels: dict[int, str], path: Path) -> None:
    """Write the corrected table, or the moves of files, to a path.

    Args:
        source: of the labels.
        origin: where all examples of the data set came from.
        labels: the new label of each example to change, by its position in the data set.
        path: see :func:`target`.
    """
    from symloss.data.corrected import corrected_table, image_moves
    from symloss.writing import clear_write_errors, write_whole

    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    data = Path(source.source.data)
    if origin.rows is not None:
        rows = {origin.rows[position]: label for position, label in labels.items()}
        write_whole(path, corrected_table(data, source.source.label, rows))
        return
    assert origin.files is not None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "new_file"])
    for move in image_moves(data, origin.files, labels):
        writer.writerow([without_formula(name) for name in move])
    write_whole(path, text.getvalue().encode(errors="backslashreplace"))
