"""The order of losses and noises in a table, and the parts of their texts."""

from __future__ import annotations

from typing import Any

from symloss.lab.tables import load_table
from symloss.losses.spec import parse as parse_loss
from symloss.noise.noise_spec import KINDS
from symloss.noise.noise_spec import parse as parse_noise


def noise_key(text: str) -> tuple[int, float, str]:
    """A key to sort noises by: clean first, then kind by kind, each by rate.

    >>> sorted(["asym:0.4", "sym:0.8", "sym:0.4", "clean"], key=noise_key)
    ['clean', 'sym:0.4', 'sym:0.8', 'asym:0.4']
    """
    try:
        spec = parse_noise(text)
    except (ValueError, TypeError):
        return len(KINDS), 0.0, text
    return KINDS.index(spec.kind), spec.rate or 0.0, text


def loss_parts(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a loss, and the parameters that its text gives. A text that is no loss is a name.

    >>> loss_parts("sgce:q=0.2")
    ('sgce', {'q': 0.2})
    """
    try:
        return parse_loss(text)
    except (ValueError, TypeError):
        return text, {}


def default_parameters(name: str) -> dict[str, Any]:
    """The parameters that a loss has when its text gives none; nothing for a name that is in no catalogue.

    >>> default_parameters("sgce")
    {'q': 0.7}
    """
    # Only the losses know their defaults, and they need torch: no other part of a report does.
    from symloss.losses.create import describe  # noqa: PLC0415

    try:
        return dict(describe(name).defaults)
    except (ValueError, TypeError, KeyError):
        return {}


def loss_key(text: str) -> tuple[int, str, tuple[tuple[str, float, str], ...]]:
    """A key to sort losses by: as in the paper's first table, then by name, each by the values of its parameters."""
    name, parameters = loss_parts(text)
    names = [row.loss for row in load_table("table1").rows]
    values = tuple(
        (key, float(value) if isinstance(value, (int, float)) else 0.0, str(value)) for key, value in parameters.items()
    )
    return names.index(name) if name in names else len(names), name, values
