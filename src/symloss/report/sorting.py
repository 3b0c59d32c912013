"""In which order losses and noises stand, and what their texts hold."""

from __future__ import annotations

from typing import Any

from symloss import noise
from symloss.losses.catalogue import RECORDS
from symloss.losses.create import describe
from symloss.losses.spec import parse
from symloss.noise.noise_spec import KINDS
from symloss.recipes.published_tables import load_table


def noise_key(text: str) -> tuple[int, float, str]:
    """Clean first, then kind by kind, by rate.

    >>> sorted(["asym:0.4", "sym:0.8", "sym:0.4", "clean"], key=noise_key)
    ['clean', 'sym:0.4', 'sym:0.8', 'asym:0.4']
    """
    try:
        spec = noise.parse(text)
    except (ValueError, TypeError):
        return len(KINDS), 0.0, text
    return KINDS.index(spec.kind), spec.rate or 0.0, text


def loss_parts(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a loss and its parameters, with defaults for those that are not given.

    A name that is in no catalogue stands for itself, without parameters.

    >>> loss_parts("sgce:q=0.2")
    ('sgce', {'q': 0.2})
    """
    try:
        name, given = parse(text)
        record = describe(name)
    except (ValueError, TypeError, KeyError):
        return text, {}
    return record.name, given if "preset" in given else record.defaults | given


def loss_key(text: str) -> tuple[int, str, tuple[tuple[str, float, str], ...]]:
    """As in the paper's first table, then as in the catalogue, then by the values of the parameters."""
    name, parameters = loss_parts(text)
    names = [row.loss for row in load_table("table1").rows] + list(RECORDS)
    values = tuple(
        (key, float(value) if isinstance(value, (int, float)) else 0.0, str(value)) for key, value in parameters.items()
    )
    return names.index(name) if name in names else len(names), name, values
