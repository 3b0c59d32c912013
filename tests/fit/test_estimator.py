"""RobustClassifier as it is used: the contract of scikit-learn, wrong labels found, what is kept, and bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from PIL import Image
from refusals import refused
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from symloss import RobustClassifier
from symloss.fit import held_out, search
from symloss.noise import corrupt

WEIGHTS_ARE_NOT_REPEATED_ROWS = (
    "folds and batches of networks are drawn by rows: two rows are not one row of weight two"
)


def quick(**options):
    """An estimator with one candidate of each kind that takes no time."""
    return RobustClassifier(
        **{"learners": ["closed-form", "network"], "losses": ["alpha-mae"], "budget": 0.3} | options
    )


def test_contract_of_scikit_learn():
    names = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    estimator = RobustClassifier(learners=["closed-form", "k-nn"], rounds=2, budget=0.01)
    assert_is_an_estimator(estimator, dict.fromkeys(names, WEIGHTS_ARE_NOT_REPEATED_ROWS))


@pytest.mark.slow
def test_it_learns_what_is_true_and_names_the_wrong_labels():
    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.target))
    features, test = np.split(digits.data[rows].astype(np.float32), [900])
    true, test_labels = np.split(digits.target[rows], [900])
    labels = corrupt(true, "asym:0.4", num_classes=10, seed=0, dataset="digits").labels
    fitted = RobustClassifier(budget=25, learners=["svc", "k-nn", "network"], losses=["alpha-mae"])
    fitted.fit(features, labels)
    alone = RobustClassifier(learners=["k-nn"], rounds=1, simple=True).fit(features, labels).score(test, test_labels)
    assert fitted.score(test, test_labels) > 0.94 > alone
    wrong = labels != true
    assert average_precision_score(wrong, -fitted.label_scores_) > 0.97
    assert fitted.noise_rate_ == pytest.approx(wrong.mean(), abs=0.03)
    low, high = fitted.noise_rate_interval_
    assert low < fitted.noise_rate_ < high
    assert fitted.n_wrong_ == round(900 * fitted.noise_rate_)
    assert np.mean(fitted.suggested_labels_ == true) > 0.96
    assert np.allclose(fitted.transition_.sum(1), 1)
    assert fitted.transition_[7, 1] == pytest.approx(0.4, abs=0.12)
    assert fitted.transition_[0, 0] > 0.9
    # Expected calibration error in ten bins, on clean labels; those of the noisy labels would be off by 0.2.
    probabilities = fitted.predict_proba(test)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == test_labels
    bins = np.minimum((confidence * 10).astype(int), 9)
    error = sum(abs(confidence[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert error < 0.07
    assert confidence.mean() > 0.9
    table = fitted.candidates_
    assert len({len(column) for column in table.values()}) == 1
    assert list(table["noisy_accuracy"]) == sorted(table["noisy_accuracy"], reverse=True)
    assert table["chosen"].sum() == 1
    assert 5 <= table["averaged"].sum() <= 10
    assert table["cannot_be_told_from_best"][0]
    best = table["candidate"][table["chosen"]][0]
    assert best.startswith(fitted.learner_)
    assert (fitted.epoch_ is None) == (fitted.loss_ is None) == (fitted.learner_ != "network")
    networks = [epoch for name, epoch in zip(table["candidate"], table["epoch"], strict=True) if "network" in name]
    assert networks
    assert all(1 <= epoch <= 30 for epoch in networks)


FEATURES, TRUE = make_classification(150, 8, n_informative=6, n_redundant=0, n_classes=3, class_sep=2.0, random_state=0)
LABELS = corrupt(TRUE, "sym:0.2", num_classes=3, seed=0).labels


def test_same_seed_same_result():
    """And a prediction does not depend on other rows."""
    one, two, other = (
        quick(learners=["k-nn", "network"], folds=2, random_state=seed).fit(FEATURES, LABELS).predict_proba(FEATURES)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    model = quick(learners=["network"], rounds=1, budget=1e-6).fit(FEATURES, LABELS)
    assert len(model.candidates_["candidate"]) == 1, "a budget too small for anything buys one network"
    np.testing.assert_allclose(model.predict_proba(FEATURES)[5:6], model.predict_proba(FEATURES[5:6]), rtol=1e-10)


def test_any_labels_and_inputs():
    """Words as labels; float32, tensors, images and sparse matrices as features. The wrong labels are a table."""
    words, plain = np.array(["ant", "bee", "cat"])[LABELS], FEATURES.astype(np.float32)
    reference = quick(rounds=1, folds=2).fit(plain, words)
    assert set(reference.predict(plain)) <= {"ant", "bee", "cat"}
    assert set(reference.suggested_labels_) <= {"ant", "bee", "cat"}
    images = plain.reshape(-1, 2, 2, 2)
    for same in (torch.from_numpy(plain), images, torch.from_numpy(images)):
        model = quick(rounds=1, folds=2).fit(same, words)
        assert np.array_equal(model.predict_proba(same), reference.predict_proba(plain))
    rows = sparse.csr_matrix(np.maximum(FEATURES, 0))
    assert quick(rounds=1).fit(rows, words).score(rows, words) > 0.5
    issues = reference.label_issues()
    assert len(issues) == reference.n_wrong_ > 0
    assert list(issues.columns) == ["row", "given", "suggested", "score"]
    assert list(issues["score"]) == sorted(issues["score"])
    assert (issues["given"] == words[issues["row"]]).all()
    assert (issues["given"] != issues["suggested"]).all()
    assert np.mean((LABELS != TRUE)[issues["row"]]) > 0.7
    assert issues["row"][0] == reference.label_scores_.argmin()


def test_tables_with_categories_and_gaps():
    """A category that tells the classes apart, beside numbers that do not; a word that was never seen is no error."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    town = np.where(labels == 1, "Ulm", "Bonn").astype(object)
    town[::10] = None
    noise = rng.normal(size=200)
    noise[::7] = np.nan
    table = pd.DataFrame({"noise": noise, "town": town, "number": rng.normal(size=200)})
    model = quick(learners=["closed-form", "k-nn"]).fit(table, labels)
    assert list(model.feature_names_in_) == ["noise", "town", "number"]
    assert model.score(table, labels) > 0.9
    assert model.predict(table.head(2).assign(town="Rom")).shape == (2,)
    with pytest.raises(ValueError, match="town"):
        model.predict(table.drop(columns="town"))
    with pytest.warns(UserWarning, match="Nothing was learnt from these features"):
        assert quick(learners=["k-nn"]).fit(table[["number"]], labels).encoder_ is None


def test_a_list_of_texts():
    words = [(good, noun) for good in ("fine", "great", "bad", "awful") for noun in ("film", "meal", "book", "trip")]
    texts = [f"a {good} {noun}" for good, noun in words] * 4
    labels = np.array([good in ("fine", "great") for good, _ in words] * 4)
    expected = None
    column = np.array(texts, object)
    for rows in (texts, column, column[:, None], np.array(texts), pd.Series(texts), pd.DataFrame({"text": texts})):
        model = RobustClassifier(budget=0.3, learners=["closed-form"])
        model.fit(rows if rows is not texts else [*texts[:-1], None], labels)
        probabilities = model.predict_proba(rows)
        if not isinstance(rows, pd.DataFrame):  # where few different texts are categories
            assert model.encoder_.columns_[0].kind == "text"
        assert probabilities.shape == (len(texts), 2)
        if isinstance(rows, np.ndarray):
            assert (model.predict(rows) == labels).all()
            expected = probabilities if expected is None else expected
            np.testing.assert_array_equal(probabilities, expected)
    for several in ([["a", "b"]] * 3, ["a", 2.5, "b"]):
        with refused(ValueError, "X must hold numbers, or be a DataFrame", "a list of texts holds one in each row"):
            RobustClassifier().fit(several, [0, 1, 0])


def test_other_data_than_in_fit_is_one_sentence(tmp_path):
    words, labels = ("bin", "bus", "bill"), np.arange(30) % 3
    texts, images = [f"my {words[k]} is late" for k in labels], labels[:, None, None, None] * np.ones((1, 3, 8, 8))
    town = pd.DataFrame({"town": np.array(words)[labels]})
    numbers = labels[:, None] + np.eye(30)
    files = [tmp_path / f"{k}.png" for k in range(30)]
    for path, pixels in zip(files, images, strict=True):
        Image.fromarray((80 * pixels[0]).astype(np.uint8)).save(path)
    text, own, table, of_files, of_arrays, of_numbers = (
        RobustClassifier(learners=["closed-form"], budget=0.3, rounds=1, encoder=encoder).fit(rows, labels)
        for encoder, rows in (
            *(("tfidf", texts), (lambda texts: [[len(one)] for one in texts], texts), ("auto", town)),
            *(("none", files), ("none", images), ("auto", numbers)),
        )
    )
    several, floats, bytes_ = [["a", "b"], ["c", "d"]], np.zeros((2, 3)), np.zeros((2, 3, 40, 30), np.uint8)
    for models, given, said in (
        ((text, table), ([files[0]], [1, 2], several, "hello", bytes_, floats, None),
         "X must hold a list of texts, or a table with the columns of fit; got"),
        ((own,), ([files[0]], [1, 2], "hello", bytes_, floats, town), "X must hold a list of texts as in fit; got"),
        ((of_files, of_arrays), (["hello"], [1, 2], several, "hello", floats, town, None),
         "X must hold image files, or an array (N, channels, height, width), as in fit; got"),
        ((of_arrays,), (files,), "X must hold arrays (3, 8, 8) as in fit; got files"),
        ((of_numbers,), (["hello", "b"], several, "hello"), "X must hold numbers, or be a DataFrame; got texts"),
    ):  # fmt: skip
        for model in models:
            for rows in given:
                with refused(ValueError, said):
                    model.predict(rows)
    assert list(table.predict({"town": ["bill", "bin"]})) == [2, 0]
    empty = (town[:0], [], images[:0], numbers[:0], sparse.csr_matrix((0, 30)), np.empty(0, object))
    for model in (text, own, table, of_files, of_arrays, of_numbers):
        for rows in empty:
            with refused(ValueError, "X must have a row or more; got none"):
                model.predict(rows)


def test_a_fit_that_was_killed_goes_on(tmp_path, monkeypatch):
    """The second fit finds all predictions of the first one, and comes to the same model."""
    fresh = quick(learners=["k-nn", "network"], folds=2).fit(FEATURES, LABELS)
    remembering = quick(learners=["k-nn", "network"], folds=2, memory=tmp_path)
    monkeypatch.setattr("symloss.fit.estimator.RobustClassifier._last_round", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        remembering.fit(FEATURES, LABELS)
    kept = sorted(tmp_path.iterdir())
    assert len(kept) > 3
    monkeypatch.undo()
    kept[0].write_bytes(b"damaged")
    tried = []
    real = search.Memory.keep
    monkeypatch.setattr(search.Memory, "keep", lambda *args: tried.append(args) or real(*args))
    again = remembering.fit(FEATURES, LABELS)
    assert len(tried) <= 1
    assert np.array_equal(fresh.predict_proba(FEATURES), again.predict_proba(FEATURES))
    other = remembering.set_params(random_state=5).fit(FEATURES, LABELS)
    assert not np.array_equal(fresh.predict_proba(FEATURES), other.predict_proba(FEATURES))
    assert len(list(tmp_path.iterdir())) == 2 * len(kept)


def test_pipeline_grid_search_and_clone():
    few = quick(learners=["svc"])
    tuned = GridSearchCV(make_pipeline(StandardScaler(), few), {"robustclassifier__rounds": [1, 2]}, cv=2)
    assert tuned.fit(FEATURES, LABELS).score(FEATURES, TRUE) > 0.8
    assert clone(quick(rounds=7)).rounds == 7


def test_a_network_is_exported():
    rows = torch.from_numpy(FEATURES).float()
    model = quick(learners=["network"], folds=2).fit(FEATURES, LABELS)
    module, state = model.export()
    assert np.mean(module(rows).argmax(1).numpy() == model.predict(FEATURES)) > 0.9
    copy, _ = pickle.loads(pickle.dumps(model)).export()
    copy.load_state_dict(state)
    torch.testing.assert_close(copy(rows), module(rows))
    alone = quick(learners=["network"], folds=2, simple=True).fit(FEATURES, LABELS)
    assert (len(alone.predictor_.members), alone.learner_) == (1, "network")
    exported = alone.export()[0](rows).detach().exp().numpy()
    np.testing.assert_allclose(exported, alone.predict_proba(FEATURES), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="only a network can be exported; the learner that was chosen is"):
        quick(learners=["closed-form"]).fit(FEATURES, LABELS).export()


def test_weights_count():
    """Rows of weight zero teach nothing."""
    labels, weights = TRUE.copy(), np.ones(150)
    labels[60:], weights[60:] = (TRUE[60:] + 1) % 3, 0.0
    model = quick(learners=["svc", "network"], rounds=1)
    assert model.fit(FEATURES, labels, weights).score(FEATURES, TRUE) > 0.8
    assert model.fit(FEATURES, labels).score(FEATURES, TRUE) < 0.75


def test_very_unequal_classes_are_judged_by_balanced_accuracy():
    """With one class in ten, near the other, nothing beats the majority in accuracy, yet something was learnt."""
    rng = np.random.default_rng(0)
    labels = (np.arange(1000) % 100 == 0).astype(int)
    features = rng.normal(size=(1000, 4)) + 3 * labels[:, None]
    model = quick(learners=["closed-form", "logistic", "network"], losses=["ce"]).fit(features, labels)
    assert model.measure_ == "balanced accuracy"
    assert np.mean(model.predict(features[labels == 1]) == 1) > 0.8
    assert np.mean(model.predict(features[labels == 0]) == 0) > 0.8
    labels = (np.arange(600) % 10 == 0).astype(int)
    features = rng.normal(size=(600, 2)) + 0.8 * labels[:, None]
    model = RobustClassifier(learners=["closed-form"], budget=1).fit(features, labels)
    assert model.candidates_["noisy_accuracy"].max() <= 0.9
    assert model.learned_


def test_classes_with_few_examples():
    labels, few = np.where(np.arange(150) == 0, 3, LABELS), np.arange(60) % 20
    assert 3 in quick(rounds=1).fit(FEATURES, labels).classes_
    features = np.column_stack([10 * few, FEATURES[:60]])
    assert quick(rounds=1).fit(features, few).predict(features).shape == (60,)
    two = np.where(np.arange(150) < 2, 3, LABELS)  # one of them in the training rows of a fold
    assert 3 in quick(learners=["lda"], rounds=1).fit(FEATURES, two).classes_  # warnings are errors here


GAP = np.where(np.arange(150)[:, None] == 3, np.nan, FEATURES)


@in_turn(
    "options, features, labels, message",
    [
        ({}, FEATURES, np.zeros(150), "y must have two classes or more; got one class"),
        ({}, FEATURES, np.arange(150), "y must have fewer classes than rows; got 150 labels that are all different"),
        ({"folds": 60}, FEATURES, LABELS, "as many examples as there are folds; got 60 folds and a class with"),
        ({"folds": 1}, FEATURES, LABELS, "folds must be a whole number in [2, inf); got 1"),
        ({"budget": -1}, FEATURES, LABELS, "budget must be a number in (0, inf); got -1"),
        ({"budget": 1e-9, "learners": ["svc"]}, FEATURES, LABELS, "budget must allow one training; got 1e-09 seconds"),
        ({"rounds": 0}, FEATURES, LABELS, "rounds must be a whole number in [1, inf); got 0"),
        ({"learners": ["tree"]}, FEATURES, LABELS, "learners must be one of"),
        ({"losses": ["nope"]}, FEATURES, LABELS, "there is no loss named 'nope'"),
        ({}, GAP, LABELS, "X must hold finite numbers; got NaN or inf in 1 of 150 rows"),
        ({}, FEATURES, [*LABELS[:-1].astype(str), None], "a label in every row; got None in row 149 (from 0)"),
        ({}, FEATURES, [np.nan, *LABELS[1:].astype(str)], "y must have a label in every row; got nan in row 0"),
        ({}, FEATURES, [*LABELS[:-1].tolist(), "a"], "y must hold labels of one type; got numbers and texts"),
        ({}, ["a text", 2.5] * 75, LABELS, "numbers, or be a DataFrame; got texts such as 'a text': a list of"),
        ({}, [["red", "blue"]] * 150, LABELS, "X must hold numbers, or be a DataFrame; got texts such as 'red'"),
    ],
)
def test_bad_input(options, features, labels, message):
    with refused(ValueError, message):
        quick(**options).fit(features, labels)


def test_a_learner_that_cannot_be_fitted_is_left_out():
    """Of balanced XOR the class means are all the same, and the closed form refuses that."""
    features = np.tile([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], (20, 1))
    labels = np.tile([0, 1, 1, 0], 20)
    model = quick(learners=["closed-form", "logistic", "k-nn"]).fit(features, labels)
    assert model.score(features, labels) == 1
    why = dict(zip(model.candidates_["candidate"], model.candidates_["failure"], strict=True))
    assert "centroid" in why["unhinged (raw)"]
    assert why["k-nn neighbours=5 (raw)"] is None
    assert not model.candidates_["averaged"][list(why).index("unhinged (raw)")]
    with pytest.raises(ValueError, match=r"^No learner could be fitted to these 80 rows. The first was unhinged"):
        quick(learners=["closed-form"], budget=0.01).fit(features, labels)


def test_a_leader_that_cannot_learn_from_corrected_labels_ends_no_fit(monkeypatch):
    """Nor one that fails when it is fitted to all rows: the others stand for it."""
    real, calls = held_out.fitted, []

    def fitted(candidate, data, given, rows, seed):
        calls.append(candidate.learner)
        if candidate.learner == "k-nn" and (len(rows) == 150 or not np.array_equal(given, LABELS)):
            raise ValueError("no neighbours today")
        return real(candidate, data, given, rows, seed)

    monkeypatch.setattr(held_out, "fitted", fitted)
    model = quick(learners=["k-nn", "logistic"], budget=5).fit(FEATURES, LABELS)
    assert "k-nn" in calls
    assert {member.candidate.learner for member in model.predictor_.members} == {"logistic"}
    used = model.candidates_["candidate"][model.candidates_["averaged"]]
    assert model.learner_ == "logistic"
    assert all(name.startswith("logistic") for name in used)
    assert model.score(FEATURES, TRUE) > 0.8


def test_features_that_say_nothing():
    """No count, no list, and a warning."""
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=300)
    with pytest.warns(UserWarning, match="^Nothing was learnt from these features"):
        model = quick(learners=["closed-form", "k-nn", "network"]).fit(rng.normal(size=(300, 10)), labels)
    assert not model.learned_
    assert np.isnan(model.noise_rate_)
    assert (model.n_wrong_, model.noise_rate_interval_) == (0, (0.0, 1.0))
    assert np.array_equal(model.suggested_labels_, labels)
    assert len(model.label_issues()) == 0


def test_what_is_named_is_what_predicts():
    """A small budget leaves one of the leaders, and that need not be the simplest of the best."""
    digits, true = (part[:900] for part in load_digits(return_X_y=True))
    model = RobustClassifier(budget=0.5).fit(digits, corrupt(true, "sym:0.2", num_classes=10, seed=0).labels)
    assert model.learned_
    members = [member.candidate for member in model.predictor_.members]
    assert model.learner_ in {one.learner for one in members}
    assert model.candidates_["candidate"][model.candidates_["chosen"]][0] in {one.name for one in members}


def test_overlap_is_not_taken_for_certainty():
    """Two classes that overlap: clean accuracy is a range. Ten that are apart, with wrong labels: it is known."""
    rng, true = np.random.default_rng(0), np.arange(400) % 2
    features, labels = true[:, None] + rng.normal(size=(400, 2)), np.where(rng.random(400) < 0.25, 1 - true, true)
    model = quick(learners=["closed-form", "logistic", "svc"], budget=2).fit(features, labels)
    assert model.learned_
    assert not model.classes_apart_
    digits, true = (part[:900] for part in load_digits(return_X_y=True))
    noisy = corrupt(true, "sym:0.4", num_classes=10, seed=0).labels
    assert RobustClassifier(learners=["k-nn", "svc"], budget=2).fit(digits, noisy).classes_apart_
