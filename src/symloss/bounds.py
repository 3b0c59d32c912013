"""How far a network trained with another loss can be from the best unhinged risk (prop. 5.3)."""

from __future__ import annotations

from torch import nn

from symloss import checks


def output_bound(R: float, r: float, c: float = 1.0, layers: int = 1) -> float:  # noqa: N803
    """R c^(layers - 1) r: no output of such a network is longer than this.

    Args:
        R: a bound on the Euclidean norm of the inputs.
        r: a bound on the product of the Euclidean norms of the layers' weights.
        c: the Lipschitz constant of the non-linearity between layers, which must be 0 at 0.
        layers: how many there are, none of them with a bias.

    >>> output_bound(R=2.0, r=0.5, c=1.0, layers=3)
    1.0
    """
    R = checks.number("R", R, "[0, inf)")  # noqa: N806
    r = checks.number("r", r, "[0, inf)")
    c = checks.number("c", c, "[0, inf)")
    layers = int(checks.number("layers", layers, "[1, inf)", whole=True))
    return float(R * c ** (layers - 1) * r)


def remainder_bound(beta: float, R: float, r: float, c: float = 1.0, layers: int = 1) -> float:  # noqa: N803
    """beta/2 (R c^(layers - 1) r)^2: what the loss of a network's output differs by from its linear approximation at 0.

    beta is the smoothness of the loss, in the scores; the rest as in :func:`output_bound`.

    >>> remainder_bound(beta=0.5, R=2.0, r=0.5, layers=3)
    0.25
    """
    beta = checks.number("beta", beta, "[0, inf)")
    return beta / 2 * output_bound(R, r, c, layers) ** 2


def unhinged_gap_bound(beta: float, R: float, r: float, c: float = 1.0, layers: int = 1) -> float:  # noqa: N803
    """R^2 beta c^(2 (layers - 1)) r^2, a bound on L_D(f_phi) - L_D(f_unhinged) (prop. 5.3).

    L_D is the unhinged risk, f_phi a network of least phi-risk and f_unhinged one of least unhinged risk, both among
    bias-free networks as in :func:`output_bound`. phi must be beta-smooth, with the unhinged loss as its linear
    approximation at 0: scale it by its slope there (``symloss.certify(phi, C).slope``, or ``scale="ce"``).

    >>> unhinged_gap_bound(beta=0.5, R=2.0, r=0.5, c=1.0, layers=3)
    0.5
    """
    return 2 * remainder_bound(beta, R, r, c, layers)


# The steepest slope of each; all are 0 at 0.
_LIPSCHITZ: dict[type[nn.Module], float] = {
    nn.ReLU: 1.0,
    nn.Tanh: 1.0,
    nn.ReLU6: 1.0,
    nn.Softsign: 1.0,
    nn.GELU: 1.13,
    nn.SiLU: 1.1,
}
_NEUTRAL: tuple[type[nn.Module], ...] = (nn.Identity, nn.Flatten)


def weight_product(network: nn.Module) -> float:
    """The product of the Euclidean (Frobenius) norms of the layers' weights, r of prop. 5.3.

    Takes an ``nn.Sequential`` (nested ones too) of bias-free ``nn.Linear`` layers and non-linearities.

    >>> weight_product(nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))) > 0
    True
    """
    product = 1.0
    for layer in _layers(network):
        product *= float(layer.weight.detach().double().norm())
    return product


def network_gap_bound(network: nn.Module, beta: float, R: float) -> float:  # noqa: N803
    """:func:`unhinged_gap_bound` with r, c and the number of layers read from a bias-free network.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False))
    >>> bool(network_gap_bound(network, beta=0.5, R=1.0) == 0.5 * weight_product(network) ** 2)
    True
    """
    c = max([_LIPSCHITZ[type(part)] for part in _parts(network) if type(part) in _LIPSCHITZ], default=1.0)
    return unhinged_gap_bound(beta, R, weight_product(network), c, len(_layers(network)))


def _layers(network: nn.Module) -> list[nn.Linear]:
    found = [part for part in _parts(network) if isinstance(part, nn.Linear)]
    if not found:
        raise ValueError("network must hold at least one nn.Linear layer; got none")
    for layer in found:
        if layer.bias is not None:
            raise ValueError(f"network must be bias-free for the bound to hold; got {layer}")
    return found


def _parts(network: nn.Module) -> list[nn.Module]:
    """The parts in order, refused unless the bound is known to hold for each."""
    if isinstance(network, nn.Sequential):
        return [part for child in network for part in _parts(child)]
    if type(network) in _LIPSCHITZ or isinstance(network, (nn.Linear, *_NEUTRAL)):
        return [network]
    kinds: list[type[nn.Module]] = [nn.Linear, *_LIPSCHITZ, *_NEUTRAL]
    known = ", ".join(kind.__name__ for kind in kinds)
    given = type(network).__name__ if isinstance(network, nn.Module) else checks.brief(network)
    raise TypeError(f"network must be an nn.Sequential of {known}; got {given}")
