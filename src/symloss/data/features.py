"""A table of features: one column holds the label, the others numbers and categories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from symloss.data.bad_files import BadFiles
from symloss.data.class_names import class_names, class_numbers
from symloss.data.column_kinds import check_choice
from symloss.data.dataset import DataSet, Examples, scaling_of_features
from symloss.data.table_encoder import TableEncoder
from symloss.data.table_file import TableFile

_KEEP = "(--keep, or keep=, takes a column that looks like an id)"


@dataclass(frozen=True)
class ColumnChoice:
    """What the user says about the columns of a table.

    Args:
        drop: columns to leave out.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use, although they look like ids.
    """

    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def refuse(self, data: str) -> None:
        """Raise ValueError if something was said, because the data has no columns of features."""
        for name, columns in vars(self).items():
            if columns:
                raise ValueError(
                    f"{name} must be left out for {data}, which is no table of features; got {', '.join(columns)}"
                )


def open_features(
    train: TableFile, test: TableFile | None, label: str, bad: BadFiles, choice: ColumnChoice | None = None
) -> DataSet:
    """A data set of float32 features. Column ``label`` holds the labels, and all other columns the features."""
    choice = choice or ColumnChoice()
    columns = [column for column in train.columns if column != label]
    if not columns:
        raise ValueError(f"{train.path} must have a column of features beside {label!r}; got none")
    check_choice(columns, choice.drop, choice.categorical, choice.keep, train.path)
    labels, without = train.labels(label, bad)
    encoder = TableEncoder(choice.drop, choice.categorical, choice.keep)
    dropped = frozenset(choice.drop)
    cells = train.cells([name for name in columns if name not in dropped], choice.categorical, without)
    features = torch.from_numpy(encoder.fit_cells(cells, train.path, _KEEP).transform_cells(cells))
    classes = class_names(labels, train.path)
    return DataSet(
        name=train.path.stem,
        train=Examples(features, class_numbers(labels, classes, train.path)),
        test=_test(test, encoder, label, classes, bad) if test is not None else None,
        classes=classes,
        scaling=scaling_of_features(features),
        columns=encoder.feature_names_,
        encoder=encoder,
    )


def _test(table: TableFile, encoder: TableEncoder, label: str, classes: Collection[str], bad: BadFiles) -> Examples:
    labels, without = table.labels(label, bad)
    cells = table.cells_as(encoder.number_names, encoder.category_names, without)
    features = torch.from_numpy(encoder.transform_cells(cells))
    return Examples(features, class_numbers(labels, tuple(classes), table.path))
