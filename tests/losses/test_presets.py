"""Published settings of losses."""

from __future__ import annotations

import tomllib
from importlib import resources

import torch
from conftest import CLASSES, LOSSES, random_labels, random_scores
from in_turn import in_turn

import symloss
from symloss.losses.catalogue import RECORDS
from symloss.losses.published import FILE

PUBLISHED = {
    # The baselines' table, written out again: parameters, then values for mnist, cifar10, cifar100 and webvision.
    "gce": ("q", ".7", ".7", ".7", ".7"),
    "sce": ("alpha beta", ".01 1", ".1 1", "6 .1", "10 1"),
    "nce+rce": ("alpha beta", "1 10", "1 1", "10 .1", "50 .1"),
    "nce+mae": ("alpha beta", "1 10", "1 1", "10 .1", None),
    "nfl+rce": ("alpha beta gamma", "1 10 .5", "1 1 .5", "10 .1 .5", None),
    "nce+agce": ("alpha beta a q", "0 1 4 .2", "1 4 6 1.5", "10 .1 1.8 3", "50 .1 2.5 3"),
    "nce+aul": ("alpha beta a q", "0 1 3 .1", "1 4 6.3 1.5", "10 .015 6 3", None),
    "nce+ael": ("alpha beta a", "0 1 3.5", "1 4 5", "10 .1 1.5", None),
    "anl-ce": ("alpha beta delta", "1 1 1e-6", "5 5 5e-5", "10 1 5e-7", "20 1 5e-6"),
    "anl-fl": ("alpha beta delta gamma", "1 1 1e-6 .5", "5 5 5e-5 .5", "10 1 5e-7 .5", None),
}


def test_scores_are_batch_normalized_or_left_alone():
    entries = tomllib.loads(resources.files("symloss").joinpath(FILE).read_text()).values()
    found = {preset.get("scores") for each in entries for name, preset in each.items() if name != "source"}
    assert found == {None, "batch-norm"}


@in_turn("name", [name for name in LOSSES if RECORDS[name].presets])
def test_a_preset_is_the_values_it_states(name):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    for where, preset in RECORDS[name].presets.items():
        stated = symloss.create_loss(name, **preset.values)
        for loss in (symloss.create_loss(name, preset=where), symloss.create_loss(f"{name}:preset={where}")):
            assert repr(loss) == repr(stated)
            assert torch.equal(loss(scores, labels), stated(scores, labels))
        assert preset.source
        assert not (preset.batch_norm_scores and stated.normalize), "batch norm or division by the norm, not both"


@in_turn("name", PUBLISHED)
def test_presets_are_the_published_ones(name):
    names, *columns = PUBLISHED[name]
    published = dict(zip(("mnist", "cifar10", "cifar100", "webvision"), columns, strict=True))
    presets = RECORDS[name].presets
    assert set(presets) == {where for where, numbers in published.items() if numbers}
    for where, preset in presets.items():
        values = dict(zip(names.split(), map(float, published[where].split()), strict=True))
        assert preset.penalty == values.pop("delta", None)
        assert dict(preset.values) == values


def test_given_values_win_over_a_preset():
    loss = symloss.create_loss("nce+agce:preset=cifar10", q=2.0, reduction="sum")
    stated = symloss.create_loss("nce+agce:alpha=1,beta=4,a=6,q=2", reduction="sum")
    assert repr(loss) == repr(stated)
