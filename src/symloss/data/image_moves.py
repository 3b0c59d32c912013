"""Where files of a folder of images belong once their labels are corrected. Nothing is moved here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from symloss.data.image_folder import training_part


def image_moves(folder: Path, files: Sequence[str], labels: Mapping[int, str]) -> list[tuple[str, str]]:
    """The path of each file to move, and its new path. No two files get the same one.

    Args:
        folder: a folder with a subfolder for each class, or with ``train`` in it.
        files: the paths of all images, relative to the folder.
        labels: the new class of each file to move, by its place in ``files``.
    """
    depth = len(training_part(folder).relative_to(folder).parts)
    taken, moves = set(files), []
    for place, label in labels.items():
        parts = PurePath(files[place]).parts
        new = _free(PurePath(*parts[:depth], label, *parts[depth + 1 :]), taken)
        taken.add(new)
        moves.append((files[place], new))
    return moves


def _free(path: PurePath, taken: set[str]) -> str:
    """The path, or the first of path-1, path-2, ... that no file has."""
    new, number = path, 0
    while str(new) in taken:
        number += 1
        new = path.with_stem(f"{path.stem}-{number}")
    return str(new)
