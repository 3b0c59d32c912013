"""Labels as people write them."""

from __future__ import annotations

import pytest
from refusals import refused

from symloss.data.dataset import class_numbers, find_class_names


@pytest.mark.parametrize(
    ("labels", "classes"),
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
def test_order_of_classes(labels, classes):
    assert find_class_names(labels, "here") == classes


def test_names_come_back():
    labels = ["dog", "cat", "dog", "ant"]
    classes = find_class_names(labels, "here")
    assert [classes[number] for number in class_numbers(labels, classes, "here").tolist()] == labels


@pytest.mark.parametrize(("labels", "given"), [(["a", "a"], "got only 'a'"), (["3"], "got only '3'"), ([], "got none")])
def test_one_class_only(labels, given):
    with refused(ValueError, "labels of x.csv", "at least two classes", given):
        find_class_names(labels, "x.csv")


def test_fractions_are_no_classes():
    with refused(ValueError, "labels of x.csv", "names or whole numbers", "got 0.25"):
        find_class_names(["1", "0.25", "0.75"], "x.csv")


def test_a_class_that_was_never_trained():
    with refused(ValueError, "labels of test.csv", "2 classes of the training data", "'ant'", "got 'bee'"):
        class_numbers(["ant", "bee"], ("ant", "cat"), "test.csv")
