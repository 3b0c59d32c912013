"""``of_logp``: losses of the label's log-probabilities, against the same losses of scores and plain formulas."""

import math
import pickle

import pytest
import torch
from conftest import assert_close, every_loss, random_labels, random_scores, value_and_grad
from in_turn import in_turn
from refusals import all_refused, refused
from torch.nn.functional import cross_entropy, log_softmax

import symloss
from symloss import of_logp
from symloss.losses.catalogue import RECORDS
from symloss.losses.layers import EpsSoftmax
from symloss.losses.of_logp import IMPOSSIBLE
from symloss.losses.potentials import CEPotential, GCEPotential, MAEPotential

OF_THE_LABEL = (
    *("ce", "mae", "rce", "gce", "gce:q=0.3", "gce:q=0", "focal", "focal:gamma=2", "agce", "aul", "ael", "taylor-ce"),
    *("phuber-ce", "phuber-gce", "js", "sce", "0.5*gce + 0.5*mae", "gce - 0.1*ce", "nce+agce:alpha=0", "0*nce"),
    *("label-smoothing:r=0", "focal:deviation=held-focal-factor", "gce:deviation=clamped-probability"),
)


@in_turn("spec", OF_THE_LABEL)
def test_it_is_the_loss_of_the_scores(spec):
    """Value and gradient, through a log-softmax, are those of the loss itself."""
    scores, labels = random_scores(6, 5, spread=3.0), random_labels(6, classes=5)

    def by_log_probs(z, y):
        return of_logp(spec)(log_softmax(z, 1).gather(1, y[:, None])).squeeze(1)

    loss = symloss.create_loss(spec, reduction="none")
    assert_close(value_and_grad(by_log_probs, scores, labels), value_and_grad(loss, scores, labels))


@every_loss
def test_every_loss_is_taken_or_refused(name):
    """It is taken if it is the same for all scores of the other classes, and for any number of them."""
    loss = RECORDS[name].loss()
    scores = torch.tensor([[0.3, 1.0, -1.0], [0.3, 0.5, 0.5]], dtype=torch.float64)
    scores[1, 1:] += scores[0, 1:].logsumexp(0) - scores[1, 1:].logsumexp(0)
    one, other = loss.per_class(scores)[:, 0].tolist()
    if math.isclose(one, other, rel_tol=1e-9) and name not in ("symmetrized-mse", "ldr-kl"):  # which read their number
        of_logp(name)
    else:
        with refused(ValueError, f"{name} {NEED_MORE}"):
            of_logp(name)


NEED_MORE = "needs more than the label's log-probability"


def test_refusals():
    gce, more = of_logp("gce"), f"{NEED_MORE}, because of"
    all_refused(
        (ValueError, f"sgce {more} symmetrize(GCE(q=0.7)) ... such as gce", lambda: of_logp("sgce")),
        (ValueError, f"{more} relative(CE())", lambda: of_logp("nce+agce")),
        (ValueError, f"{more} symmetrize(GCE(q=0.7))", lambda: of_logp("sgce:scale=ce")),
        (ValueError, f"{more} symmetrize(cross_entropy)", lambda: of_logp(symloss.symmetrize(cross_entropy))),
        (ValueError, f"{more} normalize='l2' ... without normalize", lambda: of_logp("gce", normalize="l2")),
        (ValueError, f"{more} normalize=EpsSoftmax(m=1)", lambda: of_logp("gce", normalize=EpsSoftmax(1.0))),
        (ValueError, f"gce {more} weight=", lambda: of_logp("gce", weight=torch.ones(3))),
        (ValueError, f"{more} label_smoothing=0.1", lambda: of_logp("gce", label_smoothing=0.1)),
        (ValueError, "gce has scale='ce' ... number of classes ... num_classes", lambda: of_logp("gce", scale="ce")),
        (TypeError, "loss must be a Loss ... got int", lambda: of_logp(3)),
        (TypeError, "options ['q'] need the name of a loss; got GCE(q=0.5)", lambda: of_logp(GCEPotential(0.5), q=1)),
        (ValueError, "num_classes must ... got 1", lambda: of_logp("gce", num_classes=1)),
        (TypeError, "log_probs must be a floating-point tensor ... got float", lambda: gce(-0.5)),
        (TypeError, "log_probs must be a floating-point tensor ... torch.int64", lambda: gce(torch.tensor([-1]))),
        (ValueError, "log-probabilities ... at most 0; got 2.5", lambda: gce(torch.tensor([2.5, -1.0]))),
    )


def test_ways_to_name_a_loss():
    logp = torch.tensor([-0.1, -3.0])
    expected = (1 - logp.exp().sqrt()) / 0.5
    module = symloss.GCE(q=0.5, reduction="sum", ignore_index=3)
    for made in (of_logp("gce:q=0.5"), of_logp("gce", q=0.5), of_logp(GCEPotential(0.5)), of_logp(module)):
        torch.testing.assert_close(made(logp), expected)
    loss = of_logp("0.1*ce + mae")
    torch.testing.assert_close(loss(logp), 1 - logp.exp() - 0.1 * logp)
    assert pickle.loads(pickle.dumps(loss)) == loss == of_logp(0.1 * CEPotential() + MAEPotential())
    assert repr(loss) == "of_logp(0.1 * CE() + MAE())"


def test_scale_ce_takes_the_number_of_classes():
    """The slope of GCE at equal scores is C^-q, that of MAE 1/C."""
    logp = torch.tensor([-0.1, -3.0], dtype=torch.float64)
    scaled = of_logp("gce:q=0.5,scale=ce", num_classes=100)
    assert_close(scaled(logp), 10 * of_logp("gce:q=0.5")(logp))
    total = of_logp("(mae + gce:q=0.5):scale=ce", num_classes=100)
    assert_close(total(logp), of_logp("mae + gce:q=0.5")(logp) / 0.11)


@in_turn("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shapes_and_types(dtype):
    for shape in ((), (0,), (3,), (2, 3, 4)):
        logp = -torch.rand(shape).to(dtype)
        value = of_logp("gce:q=0.5")(logp)
        assert value.shape == shape
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(value, (1 - logp.to(value.dtype).exp().sqrt()) / 0.5)


@in_turn("spec", OF_THE_LABEL)
@in_turn("dtype", [torch.float32, torch.float64])
def test_at_the_ends(spec, dtype):
    """At p = 1, just above it by rounding, and at p = 0 the values and slopes are those of the limits."""
    logp = torch.tensor([-1e-9, 0.0, 1e-7, -math.inf, IMPOSSIBLE], dtype=dtype, requires_grad=True)
    values = of_logp(spec)(logp)
    (gradient,) = torch.autograd.grad(values.sum(), logp)
    beside, certain, above, impossible, hopeless = values.tolist()
    assert certain == above == pytest.approx(beside, abs=1e-7)
    assert impossible == hopeless
    assert math.isfinite(impossible)
    assert gradient[1:3].tolist() == pytest.approx([float(gradient[0])] * 2, abs=1e-4)
    assert gradient[3] == 0
    assert gradient.isfinite().all()


def test_not_a_number_stays_one_and_other_devices_are_not_looked_at():
    value, gradient = value_and_grad(of_logp("gce"), torch.tensor([math.nan, -1.0]))
    assert value.isnan().tolist() == gradient.isnan().tolist() == [True, False]
    assert of_logp("gce")(torch.zeros(3, 2, device="meta")).shape == (3, 2)


@pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")
@in_turn("spec", ["gce:q=0.5", "0.1*ce + mae", "focal"])
def test_transforms(spec):
    loss = of_logp(spec)
    logp = torch.tensor([-0.02, -0.7, -2.0], dtype=torch.float64)
    _, gradient = value_and_grad(lambda x: loss(x).sum(), logp)
    assert_close(torch.func.vmap(torch.func.grad(loss))(logp), gradient)
    assert_close(torch.func.jvp(loss, (logp,), (torch.ones_like(logp),))[1], gradient)


@pytest.mark.slow
def test_torch_compile():
    loss = of_logp("gce:q=0.5 + 0.1*focal")
    compiled = torch.compile(loss.__call__, backend="eager", fullgraph=True)
    logp = torch.tensor([1e-7, -0.02, -0.7, -math.inf])
    torch.testing.assert_close(value_and_grad(compiled, logp), value_and_grad(loss, logp))
