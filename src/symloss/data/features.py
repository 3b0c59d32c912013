"""A table of features: one column holds the label, all others numbers."""

from __future__ import annotations

from torch import Tensor

from symloss.data.bad_files import BadFiles
from symloss.data.class_names import class_names, class_numbers
from symloss.data.dataset import DataSet, Examples, scaling_of_features
from symloss.data.table_file import TableFile


def open_features(train: TableFile, test: TableFile | None, label: str, bad: BadFiles) -> DataSet:
    """A data set of float32 features. Column ``label`` holds the labels, and all other columns the features."""
    columns = [column for column in train.columns if column != label]
    if not columns:
        raise ValueError(f"{train.path} must have a column of features beside {label!r}; got none")
    features, labels = _read(train, columns, label, bad)
    classes = class_names(labels, train.path)
    return DataSet(
        name=train.path.stem,
        train=Examples(features, class_numbers(labels, classes, train.path)),
        test=_test(test, columns, label, classes, bad) if test is not None else None,
        classes=classes,
        scaling=scaling_of_features(features),
        columns=tuple(columns),
    )


def _test(table: TableFile, columns: list[str], label: str, classes: tuple[str, ...], bad: BadFiles) -> Examples:
    for column in columns:
        table.require(column, "feature")
    features, labels = _read(table, columns, label, bad)
    return Examples(features, class_numbers(labels, classes, table.path))


def _read(table: TableFile, columns: list[str], label: str, bad: BadFiles) -> tuple[Tensor, list[str]]:
    labels, without = table.labels(label, bad)
    return table.numbers(columns, without), labels
