"""Hugging Face: the accuracy on noisy labels chooses the epoch, and the callback keeps the margins of a Trainer."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from forked_processes import free_port, together

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from datasets import Dataset
from in_turn import in_turn
from language_models import arguments, causal, classifier, join_two, rows_of, texts
from refusals import all_refused, refused
from tokenizers import Tokenizer, models
from torch import nn
from transformers import EvalPrediction, Trainer

from symloss.adapters import hf
from symloss.adapters.hf_causal import CausalTrainer
from symloss.adapters.hf_tokens import suspicious_spans, suspicious_words

ROWS, LENGTH, CLASSES = 8, 6, 3
STILL = {"learning_rate": 0.0, "max_steps": -1, "num_train_epochs": 2}
"""The weights stay, so that margins can be computed afterwards."""


def tags():
    """Labels of tokens: of each row another number counts, at the start, in the middle or at the end."""
    labels = torch.randint(CLASSES, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    counted = torch.tensor([[1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 1]])
    return torch.where(counted.repeat(2, 1) > 0, labels, -100)


def image_model():
    torch.manual_seed(0)
    config = transformers.ResNetConfig(num_channels=3, embedding_size=4, hidden_sizes=[4], depths=[1], num_labels=3)
    return transformers.ResNetForImageClassification(config)


def by_hand(row, label):
    return row[label] - max(value for k, value in enumerate(row) if k != label)


def mean_margins(logits, labels, shift=False):
    """Of each row the mean over its labels."""
    found = []
    for scores, given in zip(logits.tolist(), labels.tolist(), strict=True):
        pairs = zip(scores[:-1], given[1:], strict=True) if shift else zip(scores, given, strict=True)
        margins = [by_hand(row, label) for row, label in pairs if label != -100]
        found.append(np.mean(margins) if margins else np.nan)
    return np.array(found)


def single():
    """A classifier of sequences, its data and the margins of its examples."""
    model, ids, labels = classifier("BertForSequenceClassification"), texts(ROWS, LENGTH)[0], torch.arange(ROWS) % 3
    expected = [by_hand(row, label) for row, label in zip(model(ids).logits.tolist(), labels.tolist(), strict=True)]
    return model, rows_of(ids, labels), np.array(expected)


def language():
    model, (ids, labels) = causal(), texts(ROWS, LENGTH)
    labels = torch.where(tags() >= 0, ids, -100)
    labels[:, -1] = ids[:, -1]  # the label of the first token alone would never be predicted
    return model, rows_of(ids, labels), mean_margins(model(ids).logits, labels, shift=True)


def masked():
    model, (ids, _) = classifier("BertForMaskedLM"), texts(ROWS, LENGTH)
    labels = torch.where(tags() >= 0, ids, -100)
    labels[3] = -100  # a text without a label
    return model, rows_of(ids, labels), mean_margins(model(ids).logits, labels)


def watched(folder, model, rows, cls=Trainer, settings=None, **options):
    """A trainer, and the callback that records its margins."""
    trainer = cls(model, arguments(folder, **STILL | (settings or {})), train_dataset=rows, **options)
    return trainer, hf.MarginCallback(trainer)


@in_turn("loss", [{}, {"compute_loss_func": hf.loss("gce:q=0.7")}])
@in_turn("place", [single, language, masked])
def test_margins_of_examples(place, loss, tmp_path):
    """Whoever computes the loss, and in parts of a batch."""
    model, rows, expected = place()
    trainer, margins = watched(tmp_path, model, rows, settings={"gradient_accumulation_steps": 3}, **loss)
    trainer.train()
    assert (margins.recorder.epochs, len(margins.recorder)) == (2, ROWS)
    np.testing.assert_allclose(margins.recorder.margin, expected, rtol=1e-4, atol=1e-5)
    assert margins.recorder.seen.tolist() == np.isfinite(expected).tolist()
    assert np.nanstd(expected) > 1e-3
    ranked = np.argsort(expected, kind="stable")[: margins.recorder.seen.sum()]
    assert margins.recorder.to_frame().row.tolist() == ranked.tolist()


def test_margins_of_images_whose_data_set_has_other_columns(tmp_path):
    model, labels = image_model(), torch.arange(ROWS) % 3
    pixels = torch.randn(ROWS, 3, 8, 8)
    rows = [{"pixel_values": each, "labels": label, "name": "cat"} for each, label in zip(pixels, labels, strict=True)]
    trainer, margins = watched(tmp_path, model, rows, settings={"per_device_train_batch_size": ROWS})
    trainer.train()
    scores = model.train()(pixels).logits  # normalised by the whole batch
    expected = [by_hand(row, label) for row, label in zip(scores.tolist(), labels.tolist(), strict=True)]
    np.testing.assert_allclose(margins.recorder.margin, expected, rtol=1e-4, atol=1e-5)
    assert trainer.predict(rows).predictions.shape == (ROWS, 3)


@in_turn("padding", ["right", "left"])
def test_margins_of_tokens(padding, tmp_path):
    """Of a data set of Hugging Face, whose rows have different lengths."""
    model = classifier("LlamaForTokenClassification", classifier_dropout=0.0)  # whose positions are relative
    labels, ids = tags(), texts(ROWS, LENGTH)[0]
    lengths = [LENGTH - number % 3 for number in range(ROWS)]
    data = {"input_ids": [], "labels": [], "tokens": []}
    for row, given, length in zip(ids.tolist(), labels.tolist(), lengths, strict=True):
        data["input_ids"].append(row[:length])
        data["labels"].append(given[:length])
        data["tokens"].append(["word"] * length)
    data["labels"][2] = [-100] * lengths[2]  # an example without a label
    collator = transformers.DataCollatorForTokenClassification(tokenizer(padding))
    trainer, margins = watched(tmp_path, model, Dataset.from_dict(data), data_collator=collator)
    trainer.train()
    found = margins.by_token()
    for number in range(ROWS):
        scores = model.eval()(torch.tensor([data["input_ids"][number]])).logits[0].tolist()
        expected = [
            np.nan if label == -100 else by_hand(row, label)
            for row, label in zip(scores, data["labels"][number], strict=True)
        ]
        np.testing.assert_allclose(found[number], expected, rtol=1e-4, atol=1e-5)
    assert len(margins.recorder) == sum(label != -100 for row in data["labels"] for label in row)


def tokenizer(padding_side="right"):
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(61)}, unk_token="w3"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", padding_side=padding_side)


def learning(folder, resume=None, **settings):
    """Margins of a training that changes the weights, and those that its last checkpoint has."""
    model, rows, _ = single()
    plain = {"learning_rate": 0.5, "num_train_epochs": 3, "save_strategy": "steps", "save_steps": 3}
    trainer, margins = watched(folder, model, rows, settings=plain | settings)
    trainer.train(resume_from_checkpoint=resume)
    return margins.recorder


def test_a_training_resumed_in_the_middle_of_an_epoch_has_the_same_margins(tmp_path):
    whole = learning(tmp_path / "whole")
    assert (whole.epochs, np.ptp(whole.margin) > 0.1) == (3, True)
    half = learning(tmp_path / "half", max_steps=6)
    assert not np.allclose(half.margin, whole.margin, atol=1e-3)
    for resume, folder in ((True, tmp_path / "half"), (str(tmp_path / "half" / "checkpoint-6"), tmp_path / "other")):
        resumed = learning(folder, resume)
        assert resumed.epochs == 3
        np.testing.assert_allclose(resumed.margin, whole.margin, rtol=1e-5, atol=1e-6)
        shutil.rmtree(folder / "checkpoint-12")
        shutil.rmtree(folder / "checkpoint-9")
    (tmp_path / "half" / "checkpoint-6" / "margin_sums.npz").unlink()
    with pytest.warns(UserWarning, match=r"No margins found in '.*checkpoint-6'. They are recorded from here on"):
        late = learning(tmp_path / "half", True)
    assert late.seen.all()
    assert not np.allclose(late.margin, whole.margin, atol=1e-3)


def test_a_second_training_and_an_evaluation_start_from_nothing(tmp_path):
    model, rows, expected = single()
    trainer, margins = watched(tmp_path, model, rows)
    trainer.train()
    with torch.no_grad():
        model.classifier.weight.neg_()
        model.classifier.bias.neg_()
    trainer.train()
    assert margins.recorder.epochs == 2
    after = margins.recorder.margin.copy()
    assert not np.allclose(after, expected, atol=1e-3)
    assert trainer.evaluate(trainer.train_dataset).keys() >= {"eval_loss"}  # whose batches have the index
    np.testing.assert_array_equal(margins.recorder.margin, after)


def test_the_audit_of_a_training_finds_the_wrong_labels(tmp_path):
    """The class of a text is that of its first token; a fifth of the labels are wrong."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 61, (200, 4), generator=random)
    true = torch.randint(CLASSES, (200,), generator=random)
    ids[:, 0] = true
    noisy = torch.where(torch.arange(200) < 40, (true + 1) % CLASSES, true)
    settings = {"learning_rate": 0.01, "optim": "adamw_torch", "num_train_epochs": 8, "per_device_train_batch_size": 20}
    model = classifier("BertForSequenceClassification")
    loss = hf.loss("gce:q=0.7")
    trainer, margins = watched(tmp_path, model, rows_of(ids, noisy), settings=settings, compute_loss_func=loss)
    trainer.train()
    chances = torch.from_numpy(trainer.predict(rows_of(ids, noisy)).predictions).softmax(1)
    audit = margins.audit(noisy, chances, truth=true)
    assert audit.average_precision > 0.95
    assert abs(audit.n_wrong - 40) < 8
    assert audit.right_suggestions > 0.8


def test_texts_that_do_not_follow_the_rule_have_low_margins(tmp_path):
    """Each token is the one before it plus one, but for a fifth of the texts."""
    random = torch.Generator().manual_seed(0)
    ids = 3 + (torch.randint(58, (100, 1), generator=random) + torch.arange(8)) % 58
    ids[:20] = torch.randint(3, 61, (20, 8), generator=random)
    settings = {
        "learning_rate": 0.02,
        "optim": "adamw_torch",
        "num_train_epochs": 10,
        "per_device_train_batch_size": 20,
    }
    model = causal(num_hidden_layers=1)
    loss = hf.loss("gce:q=0.3")
    trainer, margins = watched(tmp_path, model, rows_of(ids, ids), settings=settings, compute_loss_func=loss)
    trainer.train()
    assert set(margins.recorder.to_frame().row[:20]) == set(range(20))


NAMES = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]
WORDS = [["Ann", "Smithson", "met", "Bob", "at", "Acme"]]
IDS = [[None, 0, 1, 1, 2, 3, 4, 5, 5, None]]
TAGS = [[-100, 1, 2, 2, 0, 1, 0, 3, -100, -100]]
MARGINS = [[np.nan, 2.0, -3.0, 1.0, 4.0, 0.5, -0.5, 3.0, np.nan, np.nan]]


def test_words_join_their_tokens_and_spans_their_words():
    predicted = [[0, 1, 0, 4, 0, 1, 3, 3, 0, 0, 0]]  # of a batch that was padded
    words = suspicious_words(MARGINS, TAGS, IDS, predicted=predicted, class_names=NAMES, words=WORDS)
    assert words.iloc[0].to_dict() == {
        "row": 0, "word": 1, "text": "Smithson", "given": "I-PER", "suggested": "O", "margin": -1.0
    }  # fmt: skip
    assert words.text.tolist() == ["Smithson", "at", "Bob", "Ann", "Acme", "met"]
    assert words.suggested.tolist()[1] == "B-ORG"
    spans = suspicious_spans(words)
    assert spans.to_dict("list") == {
        "row": [0, 0, 0], "start": [0, 3, 5], "end": [2, 4, 6], "text": ["Ann Smithson", "Bob", "Acme"],
        "given": ["PER", "PER", "ORG"], "margin": [-1.0, 0.5, 3.0],
    }  # fmt: skip
    assert suspicious_words(MARGINS, TAGS, IDS).given.tolist() == [2, 0, 1, 1, 3, 0]
    assert suspicious_words([[np.nan]], [[-100]], [[0]]).empty


@in_turn(
    "tags, spans",
    [
        ("B-A I-A B-A O I-A", [(0, 2), (2, 3), (4, 5)]),
        ("I-A I-B I-B", [(0, 1), (1, 3)]),
        ("S-A B-A I-A E-A", [(0, 1), (1, 4)]),
        ("O O", []),
    ],
)
def test_spans_of_the_usual_schemes(tags, spans):
    rows = [{"row": 0, "word": k, "given": tag, "margin": k} for k, tag in enumerate(tags.split())]
    found = suspicious_spans(pd.DataFrame(rows))
    assert list(zip(found.start, found.end, strict=True)) == spans
    another = [row | {"row": 1} for row in rows]  # the next example does not continue a span
    assert len(suspicious_spans(pd.DataFrame(rows + another))) == 2 * len(spans)
    gap = [row | {"word": 2 * row["word"]} for row in rows]  # nor do words with an unlabelled one between
    assert len(suspicious_spans(pd.DataFrame(gap))) == sum(end - start for start, end in spans)


def test_a_span_ends_with_its_example():
    rows = [{"row": row, "word": row, "given": "I-A", "margin": 0.0} for row in range(2)]
    assert suspicious_spans(pd.DataFrame(rows)).start.tolist() == [0, 1]


def test_words_of_other_tokens_are_refused():
    with refused(ValueError, "must have the same tokens; example 0 has 10, 9 and 10"):
        suspicious_words(MARGINS, [TAGS[0][:-1]], IDS)


def test_a_token_classifier_finds_the_wrong_words_and_spans(tmp_path):
    """The tag of a word is that of its token. Of each tenth sentence two words that make a span have a wrong one."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 61, (120, 8), generator=random)
    ids[:, 0], ids[:, 1] = 3, 4  # tagged B-PER and I-PER
    true = torch.where(ids == 3, 1, torch.where(ids == 4, 2, 0))
    noisy = true.clone()
    noisy[::10, 0], noisy[::10, 1], noisy[1::10, 5] = 3, 4, 1
    settings = {"learning_rate": 0.02, "optim": "adamw_torch", "num_train_epochs": 8, "per_device_train_batch_size": 20}
    model, loss = classifier("BertForTokenClassification", labels=5), hf.loss("gce:q=0.7")
    trainer, margins = watched(tmp_path, model, rows_of(ids, noisy), settings=settings, compute_loss_func=loss)
    trainer.train()
    predicted = trainer.predict(rows_of(ids, noisy)).predictions.argmax(-1)
    word_ids = [list(range(8))] * 120
    words = suspicious_words(margins.by_token(), noisy, word_ids, predicted=predicted, class_names=NAMES)
    wrong = {tuple(place) for place in (noisy != true).nonzero().tolist()}
    worst = words[: len(wrong)]
    assert {*zip(worst.row, worst.word, strict=True)} == wrong
    assert worst.suggested.tolist() == [NAMES[true[row, word]] for row, word in zip(worst.row, worst.word, strict=True)]
    spans = suspicious_spans(words)[:24]
    assert set(zip(spans.row, spans.start, strict=True)) == {(k, 0) for k in range(0, 120, 10)} | {
        (k, 5) for k in range(1, 120, 10)
    }


def test_a_wrong_use_of_the_callback_gets_one_sentence(tmp_path):
    model, rows, _ = single()
    tokens = classifier("BertForTokenClassification")

    def train(model=model, rows=rows, change=None, cls=Trainer, **options):
        def call():
            trainer, _ = watched(tmp_path, model, rows, cls, **options)
            if change is not None:
                change(trainer)
            trainer.train()

        return call

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows)

    def replace(trainer):
        trainer.train_dataset = rows

    def cut(features):
        return {"input_ids": torch.stack([each["input_ids"] for each in features])[:1], "labels": torch.zeros(1).long()}

    def half(features):
        batch = transformers.default_data_collator(features)
        batch["labels"][:, 1:] = -100
        return batch

    class Silent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, input_ids, labels=None):
            return self.layer(torch.ones(1)).sum(), input_ids

    ids, (_, margins) = texts(ROWS, LENGTH)[0], watched(tmp_path, model, rows)
    all_refused(
        (
            ValueError,
            "train_dataset must have a length ... got Stream",
            train(rows=Stream(), settings={"max_steps": 2}),
        ),
        (ValueError, "train_dataset must have a length ... got NoneType", train(rows=None)),
        (ValueError, "training batches must have their index ... ['input_ids', 'labels']", train(change=replace)),
        (ValueError, "labels must have 2 rows, one for each example; got (1,)", train(data_collator=cut)),
        (ValueError, "training batches must have 'labels'", train(rows=[{"input_ids": each} for each in ids])),
        (ValueError, "class number for each token; got the keys ['input_ids', 'labels']", train(model=tokens)),
        (ValueError, "all labels of an example, [", train(tokens, rows_of(ids, tags()), data_collator=half)),
        (ValueError, "must return a dictionary with logits (N, C) or (N, T, C); got None", train(Silent())),
        (
            ValueError,
            "dictionary with logits ... got None",
            train(causal(), rows_of(ids, ids), cls=CausalTrainer, loss="mae"),
        ),
        (ValueError, "by_token needs a token classifier", margins.by_token),
        (ValueError, "No margins to audit", lambda: margins.audit([0] * 8, np.eye(8))),
    )


# Two processes record what one records.


def work(rank, answers, folder, port):
    join_two(rank, port)
    model, rows, _ = single()
    settings = {"save_strategy": "steps", "save_steps": 3}
    trainer, margins = watched(folder, model, rows[:7], settings=settings)
    trainer.train()
    trainer.train(resume_from_checkpoint=str(Path(folder) / "checkpoint-3"))
    visits = margins.recorder.state_dict()["sums"][2]
    answers.put((rank, (margins.recorder.margin, margins.recorder.epochs, float(visits.sum()))))


@pytest.mark.slow
def test_two_processes_record_what_one_records(tmp_path):
    """Also from a checkpoint in the middle of an epoch on. One row is seen twice, as 7 are shared by two."""
    _, _, expected = single()
    for margin, epochs, visits in together(work, (str(tmp_path), free_port())).values():
        np.testing.assert_allclose(margin, expected[:7], rtol=1e-4, atol=1e-5)
        assert (epochs, visits) == (2, 16)


# The accuracy on noisy labels.


def accuracy(predictions, labels, **options):
    prediction = EvalPrediction(predictions=predictions, label_ids=labels)
    return hf.noisy_accuracy(prediction, **options)["noisy_accuracy"]


def test_the_noisy_accuracy_is_the_share_of_labels_that_are_predicted():
    logits, labels = np.random.default_rng(0).normal(size=(4, 5, CLASSES)), tags()[:4, :5].numpy()
    pairs = [
        (max(range(CLASSES), key=row.__getitem__), label)
        for scores, given in zip(logits.tolist(), labels.tolist(), strict=True)
        for row, label in zip(scores, given, strict=True)
        if label != -100
    ]
    expected = sum(one == other for one, other in pairs) / len(pairs)
    assert 0 < expected < 1
    classes = hf.predicted_classes((torch.from_numpy(logits), torch.ones(3))).numpy()
    padded = np.where(labels == -100, -100, classes)  # as between processes
    for predictions in (logits, (logits, np.ones(3)), classes, padded):
        assert accuracy(predictions, labels) == pytest.approx(expected)
    shorter = labels.copy()
    shorter[3, 4] = -100
    batches = [logits[:3], (logits[3:, :4], None)], [labels[:3], labels[3:, :4]]  # with eval_do_concat_batches=False
    assert accuracy(*batches) == accuracy(logits, shorter)
    after_first = np.where([[1, 0, 0, 0, 0]], -100, labels)
    assert accuracy(np.roll(logits, -1, axis=1), labels, shift=True) == accuracy(logits, after_first)
    assert accuracy(logits[:, 0], labels[:, 1] * 0 + 1) == np.mean(logits[:, 0].argmax(-1) == 1)


def test_predictions_that_are_no_classes_are_refused():
    call = lambda *given: lambda: accuracy(*given)  # noqa: E731
    all_refused(
        (ValueError, "predictions must be logits (..., C) ... (2, 3, 4)", call(np.ones((2, 3, 4)), np.ones(2, int))),
        (ValueError, "float64 of (2,)", call(np.ones(2), np.ones(2, int))),
        (ValueError, "labels (...) class numbers ... float64 of (2,)", call(np.ones((2, 3)), np.ones(2))),
        (ValueError, "No label to compare with: all are -100", call(np.ones((2, 3)), np.array([-100, -100]))),
    )


@in_turn("helper", [None, hf.predicted_classes])
def test_the_trainer_keeps_the_epoch_with_the_best_noisy_accuracy(helper, tmp_path):
    """Where the loss prefers another one."""
    model, rows, _ = single()
    plain = {
        "learning_rate": 0.3, "num_train_epochs": 6, "eval_strategy": "epoch", "save_strategy": "epoch", "seed": 1,
        "load_best_model_at_end": True, "metric_for_best_model": "noisy_accuracy",
    }  # fmt: skip
    options = {"compute_metrics": hf.noisy_accuracy, "preprocess_logits_for_metrics": helper}
    trainer = Trainer(model, arguments(tmp_path, **STILL | plain), train_dataset=rows, eval_dataset=rows, **options)
    trainer.train()
    logs = [each for each in trainer.state.log_history if "eval_noisy_accuracy" in each]
    accuracies, losses = ([each[name] for each in logs] for name in ("eval_noisy_accuracy", "eval_loss"))
    assert trainer.state.best_metric == max(accuracies)
    logits = torch.cat([model.eval()(row["input_ids"][None]).logits for row in rows])
    right = sum(int(scores.argmax() == row["labels"]) for scores, row in zip(logits, rows, strict=True))
    assert right / ROWS == max(accuracies)
    assert len(set(accuracies)) > 1
    assert losses
