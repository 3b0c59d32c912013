"""What the files of an audit show, and what is written of it for others: exports and corrected copies of the data."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symloss.checks import shown_score
from symloss.data.source import TABLES, DataSource
from symloss.data.tables import open_table, spreadsheet_row
from symloss.fit.audit import annotation_tools, export
from symloss.fit.audit.export import AuditDocument, Suspect
from symloss.fit.folder import LabelSource
from symloss.training.settings import displayed_noise
from symloss.writing import clear_write_errors, without_formula, write_whole

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet, Origin
    from symloss.fit import Audit

MOVES = "moves.csv"
PICTURE_BYTES = 6 * 2**20  # the most bytes of pictures on a page
COLUMNS = 12  # the most columns of a table on a page


def compose(
    audit: Audit,
    facts: Sequence[tuple[str, str | None]],
    data: DataSet,
    source: DataSource,
    *,
    suspects: bool = True,
    **more: Any,
) -> AuditDocument:
    """Return what the files of an audit show: facts as pairs of a name and a text, and the suspicious examples.

    Facts without a text are left out. ``more`` has other fields of :class:`AuditDocument`.
    """
    places = audit.positions.tolist()
    origin = data.train.origin.take(places)
    rows = origin.rows
    shown = export.suspicious(audit) if suspects else []
    certain = export.typical(audit) if suspects else {}
    every = [place for chosen in certain.values() for place in chosen] + shown
    columns: list[str] = []
    cells: dict[int, tuple[str, ...]] = {}
    if every and rows is not None and len(data.input_shape) == 1:
        columns, found = _cells(source, [rows[place] for place in every])
        cells = {row: export.shortened(texts, len(every)) for row, texts in found.items()}
    # Typical examples take a quarter of the room at most, so that many classes leave some for suspicious ones.
    pictures = _pictures(data, places, every[: len(every) - len(shown)], PICTURE_BYTES // 4)
    pictures |= _pictures(data, places, shown, PICTURE_BYTES - sum(map(len, pictures.values())))

    def examples(chosen: Iterable[int]) -> tuple[Suspect, ...]:
        return tuple(Suspect(at, pictures.get(at), cells.get(rows[at], ()) if rows else ()) for at in chosen)

    shown_rows = None if rows is None else [spreadsheet_row(row) for row in rows]
    told = tuple((name, text) for name, text in facts if text is not None)
    more["typical"] = {number: examples(chosen) for number, chosen in certain.items()}
    return AuditDocument(audit, told, examples(shown), tuple(columns), shown_rows, origin.files, **more)


def _cells(source: DataSource, rows: Collection[int]) -> tuple[list[str], dict[int, tuple[str, ...]]]:
    """Return the first columns of a table but for the label, and their cells in some rows."""
    table = open_table(Path(source.data))
    columns = [column for column in table.columns if column != source.label][:COLUMNS]
    return columns, table.rows(columns, rows)


def _pictures(data: DataSet, positions: Sequence[int], chosen: Sequence[int], room: int) -> dict[int, bytes]:
    """Return the pictures of the first of some examples, by their places, as long as there is room for their bytes."""
    from symloss.data.images import thumbnail

    found: dict[int, bytes] = {}
    for place in chosen:
        picture = thumbnail(data.train.inputs, positions[place])
        if picture is None or len(picture) > room:
            break
        found[place] = picture
        room -= len(picture)
    return found


def export_for_tool(
    document: AuditDocument, source: DataSource, origin: Origin, tool: str, path: Path, overwrite: bool
) -> list[Path]:
    """Write the suspicious labels for an annotation tool, with the cells of the table or the image files."""
    audit, rows, files = document.audit, origin.rows, document.files
    columns: list[str] = []
    cells: dict[int, tuple[str, ...]] = {}
    data = Path(os.path.commonpath(files)) if files and source.is_published else Path(source.data)
    if path.exists() and data.exists() and path.samefile(data):
        raise ValueError(f"`--export` must not replace the data; got {str(path)!r}.")
    if rows is not None and files is None:
        placed = {place: rows[audit.positions[place]] for place in export.suspicious(audit)}
        columns, texts = _cells(source, placed.values())
        cells = {place: texts[row] for place, row in placed.items()}
    folder = data.parent if data.is_file() else data
    return annotation_tools.export_suspects(audit, path, tool, columns, cells, document.rows, files, folder, overwrite)


def row(document: AuditDocument, place: int) -> dict[str, Any]:
    """Return one label: its number from 0, the file or row, what it is called, what it should be, and the score."""
    audit, names = document.audit, document.audit.class_names
    return {
        "index": int(audit.positions[place]),
        "example": document.name(place),
        "given": names[audit.given[place]],
        "suggested": names[document.predicted[place]],
        "score": float(audit.label_scores[place]),
    }


def printed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as the commands print it for people."""
    shown = {name: value for name, value in row.items() if name != "index"}
    return shown | {"score": shown_score(row["score"])}


def target_of(source: LabelSource, out: Path, overwrite: bool) -> Path:
    """Return the file that will be written into a folder: the corrected table, or the moves of image files."""
    name, data = source.source.data, Path(source.source.data)
    if not name:
        raise ValueError("`--apply` needs the labelled items: audit again with `--items`.")
    own = not source.source.is_published
    is_table = own and data.suffix.lower() in TABLES and data.is_file()
    if not is_table and not (own and data.is_dir()):
        raise ValueError(f"`--apply` corrects tables and image folders of your own; got {name}")
    if source.noise != "clean":
        raise ValueError(
            "`--apply` corrects labels as they are in the data; this run added noise to them, "
            f"{displayed_noise(name, source.noise)}"
        )
    if is_table:
        open_table(data).require(source.source.label, "label")
    path = out / (data.with_stem(f"{data.stem}-corrected").name if is_table else MOVES)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already; add `--overwrite` to replace it.")
    return path


def write_corrected(
    source: LabelSource, origin: Origin, labels: dict[int, str], path: Path, unusable: Sequence[int] = ()
) -> None:
    """Write the corrected table, or the moves of files, to a path.

    Labels are by the position of an example. A table loses the rows of unusable examples; the moves name no new file.
    """
    from symloss.data.images import image_moves

    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    data = Path(source.source.data)
    if origin.rows is not None:
        rows = {origin.rows[position]: label for position, label in labels.items()}
        leave_out = {origin.rows[position] for position in unusable}
        write_whole(path, open_table(data).relabelled(source.source.label, rows, leave_out))
        return
    assert origin.files is not None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "new_file"])
    for move in [*image_moves(data, origin.files, labels), *((origin.files[position], "") for position in unusable)]:
        writer.writerow([without_formula(name) for name in move])
    write_whole(path, text.getvalue().encode(errors="backslashreplace"))
