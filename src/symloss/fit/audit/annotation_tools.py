"""Suspicious labels as files for annotation tools: Label Studio, Argilla, FiftyOne, or a CSV for any other."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symloss import __version__, checks
from symloss.fit.audit import label_studio
from symloss.fit.audit.export import suspicious
from symloss.fit.audit.label_studio import storable
from symloss.fit.audit.scores import Audit
from symloss.writing import clear_write_errors, without_formula, write_whole

MODEL = f"symloss {__version__}"
"""Who suggests the labels, as the tools show it."""


@dataclass(frozen=True)
class Example:
    """An example whose label looks wrong."""

    facts: Mapping[str, Any]  # its index, row or file, labels and score
    probability: float  # of the suggested label
    cells: Mapping[str, str]  # what there is to read, by the name of the column
    image: str | None  # the absolute path of the image file, or its URL


@dataclass(frozen=True, eq=False)
class Suspects:
    """The examples whose labels look wrong, the most suspicious first."""

    audit: Audit
    class_names: Sequence[str]
    examples: Sequence[Example]
    columns: Sequence[str]  # the names of the cells
    root: Path | None  # the folder that holds the folder of the image files; None without image files


def export_audit(
    audit: Audit,
    path: Path | str,
    tool: str = "label-studio",
    *,
    columns: Mapping[str, Sequence[object]] | None = None,
    rows: Sequence[int] | None = None,
    files: Sequence[str] | None = None,
    folder: Path | str = ".",
    overwrite: bool = False,
) -> list[Path]:
    """Write the suspicious labels for an annotation tool, and return the paths of the files.

    Args:
        audit: of N labels.
        path: the file, which ends in .csv for "csv", else in .json. The labelling interface of Label Studio is written
            next to it (.xml), and so are the settings of Argilla (.settings.json).
        tool: "label-studio", "csv", "argilla" or "fiftyone".
        columns: what the tool shows of each example: names, and N values each. A text, for example.
        rows: (N,), the row of each example in a table, as a spreadsheet counts it.
        files: (N,), the image file of each example, as a path in ``folder`` or a URL. Images are shown, not columns.
        folder: of the image files.
        overwrite: replace existing files.

    >>> import tempfile
    >>> from symloss.fit import audit_labels
    >>> audit = audit_labels([0, 1], [1.0, -1.0], [[0.9, 0.1], [0.8, 0.2]], class_names=["ham", "spam"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in export_audit(audit, f"{folder}/tasks.json", columns={"text": ["Hello", "Bye"]})]
    ['tasks.json', 'tasks.xml']
    """
    shown = {} if columns is None else dict(columns)
    for name, values in {**shown, "rows": rows, "files": files}.items():
        if values is not None and len(values) != len(audit):
            raise ValueError(f"{checks.brief(name)} must have {len(audit)} values; got {len(values)}")
    cells = {place: [str(values[place]) for values in shown.values()] for place in suspicious(audit)}
    return export_suspects(audit, Path(path), tool, list(shown), cells, rows, files, Path(folder), overwrite)


def export_suspects(
    audit: Audit,
    path: Path,
    tool: str,
    columns: Sequence[str],
    cells: Mapping[int, Sequence[str]],
    rows: Sequence[int] | None,
    files: Sequence[str] | None,
    folder: Path,
    overwrite: bool,
) -> list[Path]:
    """See :func:`export_audit`. ``cells`` are those of each suspicious example, by its place in the audit."""
    written = targets(path, tool, overwrite)
    if tool != "csv" and files is None and (tool == "fiftyone" or not columns):
        needed = "image files" if tool == "fiftyone" else "texts, cells of a table or image files"
        raise ValueError(f"{tool} needs {needed} to show; these examples have none. An export for csv lists them.")
    names, folder = [storable(name) for name in audit.class_names], Path(os.path.abspath(folder))
    columns, examples = [storable(name) for name in columns], []
    for place in suspicious(audit):
        facts: dict[str, Any] = {"index": int(audit.positions[place])}
        if rows is not None:
            facts["row"] = int(rows[place])
        if files is not None:
            facts["file"] = storable(files[place])
        facts["given_label"], facts["suggested_label"] = names[audit.given[place]], names[audit.suggested[place]]
        facts["label_score"] = float(f"{audit.label_scores[place]:.6g}")
        texts = dict(zip(columns, map(storable, cells.get(place, ())), strict=False))
        probability = round(min(max(float(audit.suggested_probs[place]), 0.0), 1.0), 6)
        examples.append(Example(facts, probability, texts, None if files is None else _image(files[place], folder)))
    contents = TOOLS[tool][1](Suspects(audit, names, examples, columns, None if files is None else folder.parent))
    with clear_write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    for file, content in zip(written, contents, strict=True):
        write_whole(file, content)
    return written


def targets(path: Path, tool: str, overwrite: bool) -> list[Path]:
    """Return the files that an export writes. Raise ValueError for another ending, or if one of them exists."""
    checks.choice("the annotation tool", tool, TOOLS)
    suffixes = TOOLS[tool][0]
    if path.suffix.lower() != suffixes[0]:
        raise ValueError(f"The export for {tool} must be a {suffixes[0]} file; got {str(path)!r}.")
    found = [path, *map(path.with_suffix, suffixes[1:])]
    for each in found:
        if each.is_dir() or (each.exists() and not overwrite):
            raise ValueError(f"{each} exists already; add `--overwrite` (in Python overwrite=True) to replace it.")
    return found


def _image(file: str, folder: Path) -> str:
    return file if "://" in file else os.path.normpath(folder / file)


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _label_studio(suspects: Suspects) -> list[bytes]:
    return [_json(label_studio.tasks(suspects, MODEL)), label_studio.interface(suspects).encode()]


def _csv(suspects: Suspects) -> list[bytes]:
    """Return a table with the names of ``audit.csv``. A column of the user's with such a name is marked."""
    own = ["index", "row", "file", "given_label", "suggested_label", "label_score"]
    own = [name for name in own if not suspects.examples or name in suspects.examples[0].facts]
    header = [*own, "suggested_probability", *(f"{name} (data)" if name in own else name for name in suspects.columns)]
    lines = [[*each.facts.values(), each.probability, *each.cells.values()] for each in suspects.examples]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in (header, *lines):
        writer.writerow([without_formula(cell) if isinstance(cell, str) else cell for cell in line])
    return [text.getvalue().encode()]


def _argilla(suspects: Suspects) -> list[bytes]:
    """Return records as ``Dataset.records.from_json`` reads them, and settings as ``Settings.from_json`` does."""
    shown = "text" if suspects.root is None else "image"
    records = []
    for each in suspects.examples:
        lines = [cell if len(each.cells) == 1 else f"{name}: {cell}" for name, cell in each.cells.items()]
        suggestion = {"value": each.facts["suggested_label"], "score": each.probability, "agent": MODEL}
        fields = {shown: each.image or "\n".join(lines), "given_label": each.facts["given_label"]}
        records.append(
            {
                "id": str(each.facts["index"]),
                "fields": fields,
                "suggestions": {"label": suggestion},
                "metadata": each.facts,
            }
        )
    options = [{"value": name, "text": name} for name in suspects.class_names]
    settings = {
        "fields": [
            {"name": shown, "title": "Example", "settings": {"type": shown}},
            {"name": "given_label", "title": "Given label", "settings": {"type": "text"}},
        ],
        "questions": [{"name": "label", "settings": {"type": "label_selection", "options": options}}],
        "allow_extra_metadata": True,
    }
    return [_json(records), _json(settings)]


def _fiftyone(suspects: Suspects) -> list[bytes]:
    """Return the labels of a ``FiftyOneImageClassificationDataset``: the suggestions, with attributes."""
    labels = {
        each.image: {"label": each.facts["suggested_label"], "confidence": each.probability, "attributes": each.facts}
        for each in suspects.examples
    }
    return [_json({"classes": suspects.class_names, "labels": labels})]


TOOLS: dict[str, tuple[tuple[str, ...], Callable[[Suspects], list[bytes]]]] = {
    "label-studio": ((".json", ".xml"), _label_studio),
    "csv": ((".csv",), _csv),
    "argilla": ((".json", ".settings.json"), _argilla),
    "fiftyone": ((".json",), _fiftyone),
}
"""The suffixes of the files for each tool, and what makes their contents."""
