"""The classes of the losses: what their docstrings say, what follows from them, and what other libraries expect."""

from __future__ import annotations

import importlib.util
import inspect
import pathlib
from typing import get_args

import pytest
import torch
from torch import nn

import symloss
from symloss import functional
from symloss.loss_names import LossName
from symloss.losses.catalogue import LOSSES, RECORDS, SOURCES
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.published import PAPER

ROOT = pathlib.Path(__file__).parents[2]


def test_a_docstring_teaches():
    """Formula, ranges, reference and example: written for people. The record reads formula and meanings from there."""
    for name, loss in LOSSES.items():
        record, text = RECORDS[name], " ".join(inspect.cleandoc(loss.__doc__).split())
        source = "Lemire Paquin et al., " if record.source == PAPER else SOURCES[record.source]
        expected = [f"Reference: {source}", f"{loss.__name__}("]
        assert [record.formula, *(p.meaning for p in record.parameters)].count("") == 0, name
        assert [words for words in expected if words not in text] == [], name
        assert ('``normalize="l2"`` is the default here' in text) == (record.normalize == "l2"), name


def test_a_signature_has_the_parameters_of_the_record():
    for name, loss in LOSSES.items():
        *own, options = inspect.signature(loss).parameters.values()
        replaced = {p.instead_of for p in RECORDS[name].parameters}
        expected = {key: None if key in replaced else value for key, value in RECORDS[name].defaults.items()}
        assert {p.name: p.default for p in own} == expected
        assert options.kind is options.VAR_KEYWORD


def test_options_are_those_of_criterion():
    keywords = [p.name for p in inspect.signature(Criterion).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert list(LossOptions.__annotations__) == keywords


def test_generated_files_are_current():
    """``make generated`` writes them."""
    spec = importlib.util.spec_from_file_location("write_generated", ROOT / "tools" / "write_generated.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    stale = [path.name for path, text in script.generated() if path.read_text() != text]
    assert stale == []
    assert list(get_args(LossName)) == symloss.list_losses()


def test_a_function_takes_parameters_by_position_too():
    scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
    assert functional.agce(scores, labels, 2.0, q=0.5) == functional.agce(input=scores, target=labels, a=2.0, q=0.5)
    with pytest.raises(TypeError, match="gce takes at most 1 parameters by position; got 2"):
        functional.gce(scores, labels, 0.5, 0.5)
    with pytest.raises(TypeError, match="q is given twice"):
        functional.gce(scores, labels, 0.5, q=0.7)


def test_skorch_finds_scores():
    """It returns probabilities where the criterion is a CrossEntropyLoss, and raw scores otherwise."""
    assert all(issubclass(loss, nn.CrossEntropyLoss) for loss in LOSSES.values())
    classifier = pytest.importorskip("skorch").NeuralNetClassifier(nn.Linear(3, 2), criterion=symloss.GCE, verbose=0)
    examples = torch.randn(40, 3)
    probabilities = classifier.fit(examples, (examples[:, 0] > 0).long()).predict_proba(examples)
    torch.testing.assert_close(torch.as_tensor(probabilities).sum(1), torch.ones(40))


@pytest.mark.parametrize("shape", [(4,), (5, 4), (3, 4, 2)], ids=str)
def test_fastai_finds_probabilities_and_classes(shape):
    scores = torch.randn(shape)
    dim = 0 if len(shape) == 1 else 1
    torch.testing.assert_close(symloss.GCE().activation(scores), scores.softmax(dim))
    unit = scores / scores.norm(dim=dim, keepdim=True)
    torch.testing.assert_close(symloss.SGCE(temperature=0.5).activation(scores), (unit / 0.5).softmax(dim))
    assert torch.equal(symloss.SGCE().decodes(scores), scores.argmax(dim))
