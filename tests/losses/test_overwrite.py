"""``overwrite=True``: the scores are turned into their gradient."""

import pytest
import torch

import symloss

SCORES = 3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(3))
LABELS = torch.tensor([0, 6, -100, 3, 3])


def test_the_gradient_takes_the_memory_of_the_scores():
    leaf = SCORES.clone().requires_grad_()
    expected = symloss.GCE()(leaf, LABELS)
    (expected_gradient,) = torch.autograd.grad(expected, leaf, torch.tensor(0.5))
    scores = leaf * 1.0
    memory = scores.data_ptr()
    value = symloss.GCE(overwrite=True)(scores, LABELS)
    torch.testing.assert_close(value, expected)
    (gradient,) = torch.autograd.grad(value, scores, torch.tensor(0.5))
    assert gradient.data_ptr() == memory
    torch.testing.assert_close(gradient, expected_gradient)


def test_a_second_use_is_an_error():
    leaf = SCORES.clone().requires_grad_()
    loss = symloss.GCE(overwrite=True)
    scores = leaf * 1.0
    value = loss(scores, LABELS)
    torch.autograd.grad(value, scores, retain_graph=True)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(value, scores)
    with pytest.raises(RuntimeError, match="overwrite=True keeps no scores"):
        torch.autograd.grad(loss(leaf * 1.0, LABELS), leaf, create_graph=True)


def test_scores_that_others_need_are_not_overwritten_in_silence():
    """Autograd notices that tanh has lost its result."""
    leaf = SCORES.clone().requires_grad_()
    value = symloss.GCE(overwrite=True)(leaf.tanh(), LABELS)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_no_gradient_no_overwriting():
    scores = SCORES.clone()
    symloss.GCE(overwrite=True)(scores, LABELS)
    assert torch.equal(scores, SCORES)
