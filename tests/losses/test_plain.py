"""The floors: formulas, kernels that can be switched off, and what kernels must not get wrong."""

import runpy
import threading
from dataclasses import dataclass

import pytest
import torch
from in_turn import in_turn

import symloss
from symloss.losses import potentials, validation
from symloss.losses.heads import linear_loss
from symloss.losses.kernels.dispatch import kernel_for
from symloss.losses.operators import Insensitive, Symmetrize
from symloss.losses.potentials import CEPotential, GCEPotential, MAEPotential, PowerPotential
from symloss.losses.validation import plain

Z = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([2, 1])
PRIOR = torch.tensor([0.2, 0.3, 0.5])


@pytest.fixture
def breakpoint_in_gce(monkeypatch):
    """Counts how often the formula of GCE without its constant is reached."""
    reached = []
    formula = PowerPotential.phi
    monkeypatch.setattr(PowerPotential, "phi", lambda *parts: (reached.append(1), formula(*parts))[1])
    return reached


SGCE = symloss.symmetrize(GCEPotential(0.8))


def by_head(scores, labels):
    return linear_loss(SGCE, torch.eye(2, dtype=torch.float64), scores.T.contiguous(), None, labels)


@pytest.mark.parametrize("loss", [SGCE, by_head], ids=["loss", "head"])
def test_a_breakpoint_in_the_formula_fires(loss, breakpoint_in_gce):
    by_kernel = loss(Z, Y)
    assert not breakpoint_in_gce
    with plain():
        assert torch.allclose(loss(Z, Y), by_kernel, rtol=1e-12)
    reached = len(breakpoint_in_gce)
    assert reached
    loss(Z, Y)
    assert len(breakpoint_in_gce) == reached


def test_the_switch_nests_and_belongs_to_a_thread(breakpoint_in_gce):
    loss, switch = symloss.SGCE(), plain()
    with switch, switch:
        other = threading.Thread(target=loss, args=(Z, Y))
        other.start()
        other.join()
        assert not breakpoint_in_gce
    with pytest.raises(ZeroDivisionError), plain():
        1 / 0  # noqa: B018
    loss(Z, Y)
    assert not breakpoint_in_gce


@in_turn("value, off", [("1", True), ("0", False), ("", False)])
def test_the_environment_switches_kernels_off(value, off, monkeypatch):
    """It is read once, when the module is imported."""
    monkeypatch.setenv("SYMLOSS_PLAIN", value)
    assert runpy.run_path(validation.__file__)["PLAIN"].get() is off


@pytest.mark.filterwarnings("ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")
def test_the_switch_inside_a_compiled_function():
    loss = symloss.SGCE()

    def step(z):
        with plain():
            return loss(z, Y)

    assert torch.allclose(torch.compile(step, backend="eager", fullgraph=True)(Z), step(Z), rtol=1e-12)


@in_turn("operator", [Symmetrize, Insensitive, lambda loss: symloss.losses.dirichlet(loss, 0.5)])
def test_a_multiple_of_cross_entropy_counts_as_often(operator):
    """A kernel once took every affine loss for cross-entropy itself."""
    twice = operator(2 * CEPotential())(Z, Y)
    assert torch.allclose(twice, 2 * operator(CEPotential())(Z, Y), rtol=1e-12)


@dataclass
class Unhashable(potentials.Potential):
    """A loss of somebody else's, which is no frozen dataclass."""

    factor: float

    def phi(self, logp):
        return -self.factor * logp

    def derivative(self, logp):
        return torch.full_like(logp, -self.factor)


def test_a_loss_without_a_hash_is_computed_by_its_formula():
    assert torch.allclose(Unhashable(3.0)(Z, Y), 3 * CEPotential()(Z, Y), rtol=1e-12)
    assert kernel_for(Unhashable(3.0), 3) is None
    relative, smooth = symloss.losses.relative(Unhashable(3.0)), {"label_smoothing": 0.1}
    assert torch.allclose(relative(Z, Y, **smooth), symloss.losses.relative(CEPotential())(Z, Y, **smooth), rtol=1e-12)


def test_a_bug_in_the_formula_of_somebody_else_is_not_hidden():
    class Wrong(potentials.Potential):
        def phi(self, logp):
            return logp + "1"

        def derivative(self, logp):
            return logp

    with pytest.raises(TypeError, match="str"):
        Wrong()(Z, Y)


EQUAL = [
    lambda: symloss.symmetrize(GCEPotential(0.5), PRIOR.clone()),
    lambda: symloss.decompose(MAEPotential()).insensitive,
    lambda: symloss.losses.blend(MAEPotential(), 2.0),
    lambda: symloss.losses.dirichlet(CEPotential(), PRIOR.clone()),
    lambda: symloss.losses.noisy(CEPotential(), torch.eye(3)),
    lambda: symloss.SGCE(scale="ce").loss,
    lambda: symloss.symmetrize(CEPotential(), PRIOR.clone()) + 2 * MAEPotential(),
]
UNEQUAL = [
    (symloss.symmetrize(GCEPotential(0.5)), symloss.symmetrize(GCEPotential(0.6))),
    (symloss.symmetrize(CEPotential()), symloss.decompose(CEPotential()).insensitive),
    (symloss.symmetrize(CEPotential()), symloss.symmetrize(CEPotential(), PRIOR)),
    (symloss.symmetrize(CEPotential(), PRIOR), symloss.symmetrize(CEPotential(), PRIOR.flip(0))),
    (symloss.losses.dirichlet(CEPotential(), 0.5), symloss.losses.dirichlet(CEPotential(), PRIOR)),
    (symloss.losses.dirichlet(CEPotential(), 0.5), symloss.losses.dirichlet(CEPotential(), 0.6)),
]


def test_losses_are_equal_by_value():
    for make in EQUAL:
        assert make() == make()
        assert hash(make()) == hash(make())
    assert [one for one, other in UNEQUAL if one == other] == []
    assert kernel_for(symloss.symmetrize(GCEPotential(0.5)), 4) is kernel_for(symloss.symmetrize(GCEPotential(0.5)), 4)


def test_a_loss_that_may_not_be_blended_is_refused_with_every_number_of_classes():
    """Whether a loss of somebody else's may be blended is known when the number of classes is."""

    def depends_on_names(z, y):
        return torch.nn.functional.cross_entropy(z, y, reduction="none") * (1 + y)

    fair = symloss.losses.blend(symloss.symmetrize(torch.nn.functional.cross_entropy), 2.0)
    assert torch.allclose(fair(Z, Y), symloss.symmetrize(CEPotential())(Z, Y))
    unfair = symloss.losses.blend(symloss.symmetrize(depends_on_names), 2.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="permutation-invariant"):
            unfair(Z, Y)
