"""Real runs: what they write, that each setting does what it says, margins of labels, and images changed at random."""

import contextlib
import json
import math
import multiprocessing
import os
import random
import shutil

import numpy as np
import pytest
import torch
from data_helpers import save_image
from in_turn import in_turn
from lightning_fabric import Fabric
from refusals import refused
from training_helpers import assert_same, exit_code, metrics, own_table, run, same_weights, small, weights

import symloss
from symloss.data.batches import Batches
from symloss.experiments import resolve
from symloss.noise import load_corruption
from symloss.training import Settings, train
from symloss.training.loop import Trainer
from symloss.training.margins import margins, read_margins
from symloss.training.models import create_model
from symloss.training.run import flushed_denormals
from symloss.training.task import build_model, prepare

SHARES = ("train_accuracy", "clean_accuracy", "memorised", "validation_accuracy", "test_accuracy")
PLAIN = "mlp:hidden=16,norm=none"


def inputs(examples, data):
    every = examples.inputs if examples.positions is None else examples.inputs[examples.positions]
    view = (-1, *(1 for _ in every.shape[2:]))
    mean, std = (torch.tensor(values).view(view) for values in (data.scaling.mean, data.scaling.std))
    return (every / 255 - mean) / std


def one_step(folder, **given):
    """The weights before and after a run of one step on all the data, without momentum or weight decay."""
    settings = small(model=PLAIN, epochs=1, batch=400, weight_decay=0.0, momentum=0.0, **{"clip": None} | given)
    run(settings, folder)
    before = create_model(PLAIN, input_shape=(1, 8, 8), num_classes=10, seed=0).state_dict()
    after = torch.load(folder / "checkpoint.pt", weights_only=True)["model"]
    return torch.cat([part.flatten() for part in before.values()]), torch.cat([after[n].flatten() for n in before])


def test_the_settings_alone_decide_the_weights_bit_for_bit(whole, tmp_path):
    """Whatever was drawn before; and the global random states stay as they are."""

    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()

    torch.rand(7)
    before, seen = states(), []
    result = run(small(), tmp_path / "two", on_epoch=seen.append)
    assert_same(tmp_path / "two", whole)
    assert states() == before
    rows = metrics(tmp_path / "two")
    assert [row.to_json() for row in seen] == rows
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert set(row) == {"epoch", "lr", "loss", *SHARES, "seconds"}
        assert all(math.isfinite(row[name]) and 0 <= row[name] <= (1 if name in SHARES else math.inf) for name in row)
    assert result["last"] == rows[-1]
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        (tmp_path / "two" / name).unlink()
    assert run(small(), tmp_path / "two", on_epoch=pytest.fail) == result, "a run that is done is not trained again"
    run(small(seed=1), tmp_path / "other")
    one, other = weights(whole), weights(tmp_path / "other")
    assert not any(torch.equal(one[name], other[name]) for name in one if name.endswith("weight"))


def test_the_result_says_what_was_trained_on_and_what_the_saved_weights_are_worth(whole, tmp_path):
    settings = small()
    result, task = json.loads((whole / "result.json").read_text()), prepare(settings)
    assert Settings.from_dict(result["settings"]) == settings
    assert (result["train"], result["validation"], result["test"]) == (360, 40, 360)
    assert result["noise_rate"] == pytest.approx(float((task.train.labels != task.clean).double().mean()))
    assert result["versions"]["symloss"] == symloss.__version__
    assert np.array_equal(load_corruption(whole).labels, task.corruption.labels)
    model = build_model(settings, (1, 8, 8), 10).eval()
    model.load_state_dict(torch.load(whole / "checkpoint.pt", weights_only=True)["model"])
    for name, part in (("validation_accuracy", task.validation), ("test_accuracy", task.test)):
        with torch.no_grad():
            hits = model(inputs(part, task.data)).argmax(1) == part.labels
        assert result["last"][name] == pytest.approx(float(hits.double().mean()))
    assert result["validation_labels"] == "noisy"
    for given, labels in (({"clean_validation": True}, "clean"), ({"validation": 0.0}, "none")):
        other = run(small(epochs=1, **given), tmp_path / labels)
        assert other["validation_labels"] == labels
        assert (other["last"]["validation_accuracy"] is None) == (labels == "none")


def test_metrics_of_the_training_data_are_those_of_the_model(tmp_path):
    """With a learning rate that changes nothing, an epoch measures the model as it was made."""
    settings = small("ce", model=PLAIN, lr=1e-30, weight_decay=0.0, epochs=1)
    row, task = run(settings, tmp_path)["last"], prepare(settings)
    model = create_model(PLAIN, input_shape=(1, 8, 8), num_classes=10, seed=0)
    with torch.no_grad():
        scores = model(inputs(task.train, task.data))
    found, given, true = scores.argmax(1).tolist(), task.train.labels.tolist(), task.clean.tolist()
    wrong = [i for i in range(len(given)) if given[i] != true[i]]
    expected = {
        "loss": float(torch.nn.functional.cross_entropy(scores, task.train.labels)),
        "train_accuracy": sum(a == b for a, b in zip(found, given, strict=True)) / len(given),
        "clean_accuracy": sum(a == b for a, b in zip(found, true, strict=True)) / len(given),
        "memorised": sum(found[i] == given[i] for i in wrong) / len(wrong),
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_data_of_ones_own_with_and_without_test_data(tmp_path):
    own = {"data": own_table(tmp_path), "subset": None, "model": "mlp:hidden=8"}
    result = run(small(noise="clean", **own), tmp_path / "run")
    assert (result["test"], result["noise_rate"]) == (0, None)
    unknown = {name for name, value in result["last"].items() if value is None}
    assert unknown == {"test_accuracy", "clean_accuracy", "memorised"}
    result = run(small(noise="sym:0.2", test=own["data"], **own), tmp_path / "tested")
    assert result["test"] == 60
    assert None not in result["last"].values()


def test_the_penalty_pulls_every_weight_towards_zero_and_the_gradient_is_clipped_to_its_norm(tmp_path):
    before, plain = one_step(tmp_path / "plain")
    _, penalised = one_step(tmp_path / "penalised", penalty=0.1)
    assert torch.allclose(plain - penalised, 0.05 * 0.1 * before.sign(), atol=1e-6)
    _, clipped = one_step(tmp_path / "clipped", clip=0.01)
    assert (plain - before).norm() > 0.05 * 0.02
    assert float((clipped - before).norm()) == pytest.approx(0.05 * 0.01, rel=1e-3)
    cosine = torch.nn.functional.cosine_similarity(plain - before, clipped - before, dim=0)
    assert float(cosine) == pytest.approx(1, abs=1e-3)


def test_the_learning_rate_follows_the_schedule(tmp_path):
    by_step = [0.05 * 0.1 ** (step / 6) for step in (5, 11, 17)]
    for schedule, rates in (("step:1,0.5", [0.05, 0.025, 0.0125]), ("exponential:0.1/6", by_step)):
        run(small(schedule=schedule), tmp_path / schedule[:4])
        assert [row["lr"] for row in metrics(tmp_path / schedule[:4])] == pytest.approx(rates)
    run(small(model=PLAIN, schedule="step:2,1e-30", momentum=0.0, weight_decay=0.0), tmp_path / "used")
    before, after = weights(tmp_path / "used", "checkpoint-previous.pt"), weights(tmp_path / "used")
    assert all(torch.equal(before[name], after[name]) for name in after if name.startswith("/model/"))
    start_of_all = create_model(PLAIN, input_shape=(1, 8, 8), num_classes=10, seed=0).state_dict()
    assert not torch.equal(after["/model/1.weight"], start_of_all["1.weight"])


def test_what_is_done_to_the_scores_matters(tmp_path):
    for scores in ("none", "l2", "loss"):
        run(small(scores=scores, epochs=1), tmp_path / scores)
    assert same_weights(tmp_path / "loss", tmp_path / "l2")
    assert not same_weights(tmp_path / "loss", tmp_path / "none")
    run(small("sgce:q=0.25", scores="batch-norm", epochs=1), tmp_path / "layer")
    layer = weights(tmp_path / "layer")
    assert layer["/model/scores.norm.running_mean"].shape == (10,)
    assert "/model/model.1.weight" in layer


def test_every_optimizer_learns_in_its_own_way(tmp_path):
    """All of them see the same batches; the last has one example, whatever batch normalisation says."""
    found = set()
    for optimizer in ("sgd", "nesterov", "adam", "adamw"):
        lr = 0.01 if optimizer.startswith("adam") else 0.1
        given = {"noise": "clean", "epochs": 5, "weight_decay": 0.1, "subset": 385, "validation": 0.0}
        result = run(small("ce", optimizer=optimizer, lr=lr, **given), tmp_path / optimizer)
        assert result["train"] % 64 == 1
        assert result["last"]["test_accuracy"] > 0.5, optimizer
        assert result["last"]["memorised"] is None, "no label is wrong"
        found.add(float(weights(tmp_path / optimizer)["/model/1.weight"].sum()))
    assert len(found) == 4


def two_ways(folder, name, **given):
    """The weights of a run without a setting, and with it."""
    for chosen in (False, True):
        run(small("ce", **given, **{name: chosen}), folder / str(chosen))
    return weights(folder / "False"), weights(folder / "True")


def test_channels_last_changes_the_layout_and_not_the_result(tmp_path):
    first, last = two_ways(tmp_path, "channels_last", model="cnn4:width=0.25", epochs=1, subset=200)
    strided = [name for name, value in last.items() if value.dim() == 4 and min(value.shape[1:]) > 1]
    assert strided
    assert all(last[name].is_contiguous(memory_format=torch.channels_last) for name in strided)
    assert all(torch.allclose(first[name], last[name], atol=1e-3) for name in first)


def _in_bf16(settings, folder):
    # Some virtual machines announce matrix units (AMX) that they do not have.
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    run(settings, folder)


def test_bf16_keeps_weights_in_full_precision(whole, tmp_path):
    assert exit_code(_in_bf16, small(precision="bf16-mixed"), tmp_path / "bf16") == 0
    half, full = weights(tmp_path / "bf16"), weights(whole)
    assert all(half[name].dtype == full[name].dtype for name in full)
    assert not same_weights(tmp_path / "bf16", whole)
    assert metrics(tmp_path / "bf16")[-1]["loss"] == pytest.approx(metrics(whole)[-1]["loss"], rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_learns_the_same(tmp_path):
    plain, compiled = two_ways(tmp_path, "compile", model=PLAIN, epochs=2)
    assert plain.keys() == compiled.keys()
    assert all(torch.allclose(plain[name], compiled[name], atol=1e-4) for name in plain)


@pytest.mark.slow
def test_mae_learns_what_cross_entropy_does_not(tmp_path):
    common = {"noise": "sym:0.6", "model": "mlp", "epochs": 30, "batch": 128, "subset": None, "weight_decay": 0.0}
    robust = run(small("mae", lr=0.01, **common), tmp_path / "mae")["last"]
    fooled = run(small("ce", lr=0.1, **common), tmp_path / "ce")["last"]
    assert robust["test_accuracy"] > fooled["test_accuracy"] + 0.1
    assert robust["memorised"] < 0.1
    assert fooled["memorised"] > 0.8


@in_turn("before", [False, True])
def test_denormal_numbers_are_zero_inside_and_as_before_outside(before):
    if not torch.set_flush_denormal(before):
        pytest.skip("this processor cannot flush denormal numbers")
    products = []
    try:
        for error in (None, KeyError):
            with contextlib.suppress(KeyError), flushed_denormals():
                products.append(float(torch.tensor(1e-39) * 1.0))
                if error:
                    raise error
            products.append(float(torch.tensor(1e-39) * 1.0))
    finally:
        torch.set_flush_denormal(False)
    assert [product == 0 for product in products] == [True, before] * 2


def _in_two_threads(folder, answer):
    """How many products are denormal numbers, after each epoch."""
    torch.set_num_threads(2)
    products = []
    train(small(epochs=2), folder, on_epoch=lambda _: products.append(torch.full((400_000,), 1e-39) * 1.0))
    answer.send([int(each.view(torch.int32).count_nonzero()) for each in products])


def test_training_has_no_denormal_numbers_in_any_thread_of_a_new_process(tmp_path):
    ours, theirs = multiprocessing.Pipe()
    assert exit_code(_in_two_threads, tmp_path / "run", theirs) == 0
    assert ours.recv() == [0, 0]


def by_hand(scores, labels):
    """In plain Python: of each row the margin, and the margin of the row divided by its norm."""
    rows = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        margin = row[label] - max(value for k, value in enumerate(row) if k != label)
        norm = sum(value * value for value in row) ** 0.5
        rows.append((margin, margin / norm if norm else 0.0))
    return np.array(rows).T


def test_margins_are_as_by_hand():
    scores, labels = torch.randn(30, 4), torch.randint(4, (30,))
    scores[3] = 0.0
    scores[4, labels[4]] = scores[4].max()  # a tie, or the largest
    for given in (scores, scores.bfloat16()):  # half precision is widened first
        found = margins(given, labels)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), by_hand(given.float(), labels), rtol=1e-6, atol=1e-7)


def linear(input_shape, num_classes):
    """Its scores do not depend on the batch."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(torch.Size(input_shape).numel(), num_classes))


def test_a_run_keeps_the_margins_of_the_raw_scores_of_its_batches(tmp_path):
    """With a step that changes nothing the scores stay those of the start; the loss would divide them by their norm."""
    settings = small("alpha-mae", model="test_training_runs:linear", lr=1e-30, epochs=2)
    run(settings, tmp_path)
    data = prepare(settings)
    model = build_model(settings, data.data.input_shape, 10)
    kept = read_margins(tmp_path)
    assert (kept.positions.tolist(), kept.epochs) == (data.train.positions.tolist(), 2)
    plain = Batches(data.train, batch=64, scaling=data.data.scaling, shuffle=False, seed=0, device="cpu")
    scores = torch.cat([model(batch.inputs) for batch in plain.epoch(0)]).detach()
    expected = by_hand(scores, data.train.labels)
    np.testing.assert_allclose([kept.margin, kept.unit_margin], expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(kept.margin, kept.unit_margin)


@in_turn(
    "changed, message",
    [({"margin": np.zeros(3, np.float32)}, "(3,)"), ({"epochs": np.zeros(1, np.int64)}, "(1,)"),
     ({"positions": np.zeros(2)}, "float64"), ({"unit_margin": None}, "damaged")],
)  # fmt: skip
def test_a_file_that_holds_something_else_is_refused(tmp_path, changed, message):
    good = {"positions": np.arange(2), "margin": np.zeros(2, np.float32), "unit_margin": np.zeros(2, np.float32)}
    arrays = good | {"epochs": np.array(3)} | changed
    np.savez(tmp_path / "margins.npz", **{name: value for name, value in arrays.items() if value is not None})
    with refused(ValueError, "margins.npz", "must hold", message):
        read_margins(tmp_path)


COUNT, SIDE = 24, 16


def rising(count=COUNT, height=SIDE, width=SIDE):
    """Every image grows brighter from left to right, and is black nowhere: a flip and a frame are seen at once."""
    bright = np.linspace(40, 200, width).astype(np.uint8)
    return np.stack([np.broadcast_to(bright + number, (height, width)) for number in range(count)])


def saved(folder, kind):
    """An array of images, or a folder: decoded at once ("memory"), or epoch by epoch as they are of two sizes."""
    if kind == "arrays":
        np.savez(folder / "photos.npz", x=rising(), y=np.arange(COUNT) % 2)
        return str(folder / "photos.npz")
    for number, image in enumerate(rising() if kind == "memory" else [*rising(5), *rising(3, 20, 24)]):
        save_image(folder / "photos" / ("even", "odd")[number % 2] / f"{number:02}.png", image)
    return str(folder / "photos")


def settings(data, **given):
    common = {"model": "training_helpers:drops", "epochs": 2, "batch": 8, "lr": 0.01, "validation": 0.0}
    return resolve(data, "ce", **common | given)


def seen(data, epoch, **given):
    """Each training image as the model sees it in an epoch, by its number: up to scale, 0 where it is black."""
    own = settings(data, **given)
    task = prepare(own)
    batches = list(Trainer(Fabric(accelerator="cpu", devices=1), own, task).train_batches.epoch(epoch))
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (task.data.scaling.mean, task.data.scaling.std))
    order = torch.cat([batch.index for batch in batches]).argsort()
    return torch.cat([batch.inputs * std + mean for batch in batches])[order]


def flipped(images):
    """Of each image, whether it grows darker from left to right, its frame apart."""
    rows = (image[0, image.shape[1] // 2] for image in images)
    return [bool(seen[0] > seen[-1]) for seen in (row[row > 0.1] for row in rows)]


@in_turn("kind", ["memory", "files", "arrays"])
def test_two_epochs_see_different_pixels(tmp_path, kind):
    data = saved(tmp_path, kind)
    first, second = seen(data, 0), seen(data, 1)
    same = sum(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert same < len(first) / 4  # small images have few windows
    assert torch.equal(seen(data, 0), first)
    assert 0 < sum(flipped([*first, *second])) < 2 * len(first)
    frame = first.shape[-1] // 8
    assert frame in (2, 28)
    black = (torch.cat([first, second])[:, 0] < 0.01).all(dim=1).sum(dim=1)
    assert 0 < black.max() <= frame
    assert torch.equal(seen(data, 0, augment=False), seen(data, 1, augment=False))
    assert not any(flipped(seen(data, 0, augment="none")))
    first, second = seen(data, 0, augment="crop"), seen(data, 1, augment="crop")
    assert not torch.equal(first, second)
    assert not any(flipped([*first, *second]))


def test_published_sets_are_cropped_if_asked_for_and_tables_never(tmp_path):
    """The crop is the set's own, or one in proportion."""
    assert not torch.equal(seen("digits", 0, augment="crop", subset=40), seen("digits", 1, augment="crop", subset=40))
    assert torch.equal(seen("digits", 0, subset=40), seen("digits", 1, subset=40))  # its protocol has none
    with refused(ValueError, "augment must be all or none", "'crop'", "(2,)"):
        settings(own_table(tmp_path), augment="crop")


def test_true_and_false_have_the_keys_they_always_had():
    assert [Settings(augment=value).key for value in (True, False)] == ["409d90e4caff", "2ef8a76b3f24"]
    assert Settings(augment="all") == Settings(augment=True)
    assert Settings(augment="none") == Settings(augment=False)
    assert len({Settings(augment=value).key for value in (True, False, "crop")}) == 3
    with refused(ValueError, "augment must be one of 'all', 'crop', 'none'", "got 'flip'"):
        Settings(augment="flip")


@in_turn("kind", ["memory", "files"])
def test_a_run_on_changed_images_goes_on_bit_for_bit(tmp_path, kind):
    own = settings(saved(tmp_path, kind))
    run(own, tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        run(own, tmp_path / "cut", on_epoch=lambda row: 1 / (row.epoch - 1))
    run(own, tmp_path / "cut")
    assert_same(tmp_path / "cut", tmp_path / "whole")


def test_a_run_says_what_was_done_to_its_images(tmp_path):
    data = saved(tmp_path, "memory")
    for augment, steps in ((True, ["crop:2", "flip"]), ("crop", ["crop:2"]), (False, [])):
        run(settings(data, augment=augment, epochs=1), tmp_path / str(augment))
        assert json.loads((tmp_path / str(augment) / "data.json").read_text())["augmentation"] == steps
