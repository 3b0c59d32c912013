"""Labels as people write them."""

from __future__ import annotations

import torch
from in_turn import in_turn
from refusals import refused

from symloss.data.dataset import Part, find_class_names


@in_turn(
    "labels, classes",
    [
        (["dog", "cat", "dog", "ant"], ("ant", "cat", "dog")),
        (["10", "9", "2", "10"], ("2", "9", "10")),
        (["-1", "1"], ("-1", "1")),
        (["1.0", "0.0", "1.0"], ("0.0", "1.0")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["007", "7", "3"], ("3", "007", "7")),
        (["nan", "inf"], ("inf", "nan")),
        (["ä", "z", "Z"], ("Z", "z", "ä")),
    ],
)
def test_classes_are_ordered_and_labels_come_back(labels, classes):
    assert find_class_names(labels, "here") == classes
    numbers = Part(torch.zeros(len(labels), 1), labels, "here").examples(classes).labels
    assert [classes[number] for number in numbers.tolist()] == labels


@in_turn(
    "labels, ingredients",
    [
        (["a", "a"], ("at least two classes", "got only 'a'")),
        ([], ("at least two classes", "got none")),
        (["1", "0.25", "0.75"], ("names or whole numbers", "got 0.25")),
    ],
)
def test_labels_that_name_no_classes(labels, ingredients):
    with refused(ValueError, "labels of x.csv", *ingredients):
        find_class_names(labels, "x.csv")


def test_a_class_that_was_never_trained():
    with refused(ValueError, "labels of test.csv", "2 classes of the training data", "'ant'", "got 'bee'"):
        Part(torch.zeros(2, 1), ["ant", "bee"], "test.csv").examples(("ant", "cat"))
