"""Keys to sort losses and noises in a table, and the parts of a loss's text."""

from __future__ import annotations

import re
from typing import Any

from symloss.experiments.tables import load_table
from symloss.noise.spec import KINDS
from symloss.noise.spec import parse as parse_noise

_NAME = re.compile(r"[a-z0-9+-]+")


def noise_key(text: str) -> tuple[int, float, str]:
    """A key to sort noises: clean comes first, then each kind by its rate.

    >>> sorted(["asym:0.4", "sym:0.8", "sym:0.4", "clean"], key=noise_key)
    ['clean', 'sym:0.4', 'sym:0.8', 'asym:0.4']
    """
    try:
        spec = parse_noise(text)
    except (ValueError, TypeError):
        return len(KINDS), 0.0, text
    return KINDS.index(spec.kind), spec.rate or 0.0, text


def loss_parts(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a loss, and the parameters in its text. A composed loss is a name without parameters.

    This reads the text in a run's settings. :mod:`symloss.losses.spec` reads all that users may write, but needs torch.

    >>> loss_parts("sgce:q=0.2"), loss_parts("symmetrize(focal:gamma=2)")
    (('sgce', {'q': 0.2}), ('symmetrize(focal:gamma=2)', {}))
    """
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if rest else []
    if not _NAME.fullmatch(name) or not all(equals for _, equals, _ in pairs):
        return text, {}
    return name, {key.strip(): _number_or_text(value.strip()) for key, _, value in pairs}


def _number_or_text(text: str) -> float | str:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def loss_key(text: str) -> tuple[int, str, tuple[tuple[str, float, str], ...]]:
    """A key to sort losses: in the order of the paper's first table, then by name, then by parameters."""
    name, parameters = loss_parts(text)
    names = [row.loss for row in load_table("table1").rows]
    values = tuple(
        (key, float(value) if isinstance(value, (int, float)) else 0.0, str(value)) for key, value in parameters.items()
    )
    return names.index(name) if name in names else len(names), name, values
