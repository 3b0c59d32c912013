"""``symloss audit --apply``: corrected copies. The originals are never touched."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from symloss import checks
from symloss.data.origins import Origins
from symloss.report.csv_table import without_formula

if TYPE_CHECKING:
    from symloss.robust import Audit
    from symloss.runs.settings import Settings

MOVES = "moves.csv"
ACCEPTED, REJECTED = "accepted", "rejected"


def corrections(audit: Audit, decisions: Path | None) -> dict[int, str]:
    """The new label of each example to change, by its position in the data set.

    Args:
        audit: of the labels.
        decisions: the CSV that the page wrote, of which the accepted labels count; None for every suggestion.
    """
    if decisions is None:
        flagged = audit.flagged.nonzero()[0].tolist()
        return {int(audit.positions[place]): audit.classes[audit.suggested[place]] for place in flagged}
    names = {without_formula(name): name for name in audit.classes}
    known = set(audit.positions.tolist())
    found = {}
    for number, row in enumerate(_rows(decisions), 2):
        checks.choice(f"decision in line {number} of {decisions}", row.get("decision"), (ACCEPTED, REJECTED))
        index, label = row.get("index") or "", row.get("corrected_label") or ""
        if not index.isascii() or not index.isdigit() or int(index) not in known:
            raise ValueError(
                f"index in line {number} of {decisions} must be an example of the audit; got {checks.brief(index)}"
            )
        if label not in names:
            raise ValueError(
                f"corrected_label in line {number} of {decisions} must be a class; got {checks.brief(label)}"
            )
        if row["decision"] == ACCEPTED:
            found[int(index)] = names[label]
    return found


def _rows(path: Path) -> list[dict[str, str | None]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file, restkey="more"))
    except FileNotFoundError:
        raise FileNotFoundError(f"--decisions must be a CSV that the page wrote; got no file {str(path)!r}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"--decisions must be a CSV that the page wrote; got {error} in {str(path)!r}") from None


def target(settings: Settings, out: Path, overwrite: bool) -> Path:
    """The file that will be written: a table beside the original, or the moves of a folder of images."""
    from symloss.data.opening import TABLES
    from symloss.runs.settings import displayed_noise

    data = Path(settings.data)
    own = not settings.data_is_published
    is_table = own and data.suffix.lower() in TABLES and data.is_file()
    if not is_table and not (own and data.is_dir()):
        raise ValueError(f"--apply must be for a table or a folder of images of your own; got {settings.data}")
    if settings.noise != "clean":
        raise ValueError(
            "--apply must be for labels as they are in the data; got a run that added noise to them, "
            f"{displayed_noise(settings.data, settings.noise)}"
        )
    path = data.with_stem(f"{data.stem}-corrected") if is_table else out / MOVES
    if path.exists() and not overwrite:
        raise ValueError(f"--apply must not overwrite what is there without --overwrite; got {path}, which exists")
    return path


def write_corrected(settings: Settings, origins: Origins, labels: dict[int, str], path: Path) -> None:
    """Write the corrected table, or the moves of files, to a path.

    Args:
        settings: of the run.
        origins: where all examples of the data set came from.
        labels: the new label of each example to change, by its position in the data set.
        path: see :func:`target`.
    """
    from symloss.data.corrected_table import corrected_table
    from symloss.data.image_moves import image_moves
    from symloss.writing import write_whole

    data = Path(settings.data)
    if origins.rows is not None:
        rows = {origins.rows[position]: label for position, label in labels.items()}
        write_whole(path, corrected_table(data, settings.label, rows))
        return
    assert origins.files is not None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "new_file"])
    for move in image_moves(data, origins.files, labels):
        writer.writerow([without_formula(name) for name in move])
    write_whole(path, text.getvalue().encode(errors="backslashreplace"))
