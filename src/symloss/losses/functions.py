"""The function of a loss, from its class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

import torch
from torch import Tensor

from symloss.losses.criterion import Criterion, numbers, scaled, score_map
from symloss.losses.evaluate import Options, evaluate
from symloss.losses.record import Record

P = ParamSpec("P")


def function(loss: Callable[P, Criterion]) -> Callable[Concatenate[Tensor, Tensor, P], Tensor]:
    """The function of (input, target) that computes the same as the class of a loss.

    The function takes the parameters and options of the class as keywords.

    >>> from symloss.losses.catalogue.probability import GCE
    >>> function(GCE)(torch.zeros(2, 4), torch.tensor([0, 3]), q=0.5)
    tensor(1.)
    """
    record: Record = cast(Any, loss).record

    def call(input: Tensor, target: Tensor, *args: P.args, **keywords: P.kwargs) -> Tensor:
        if len(args) > len(record.defaults):
            known = len(record.defaults)
            raise TypeError(f"{record.name} takes at most {known} parameters by position; got {len(args)}")
        values, options = dict(zip(record.defaults, args, strict=False)), cast(dict[str, Any], keywords)
        for key in values.keys() & options.keys():
            raise TypeError(f"{key} is given twice, by position and as a keyword; pass it once")
        values |= {key: options.pop(key) for key in record.defaults if key in options}
        record.refuse_unknown(options)
        scores = _score_map(options.pop("normalize", record.normalize), options.pop("temperature", 1.0))
        expression = _expression(record, options.pop("scale", None), **values)
        if options.get("weight") is not None:
            options["weight"] = numbers("weight", options["weight"], torch.float32)
        return evaluate(expression, input, target, Options(score_map=scores, **options))

    call.__name__ = call.__qualname__ = record.function_name
    call.__module__ = "symloss.functional"
    call.__doc__ = loss.__doc__
    return call  # type: ignore[return-value]  # typed by position; input= and target= work too


def _remembered(build: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a cache. It is called without the cache if an argument cannot be a key."""
    cached = functools.lru_cache(maxsize=256, typed=True)(build)

    def look_up(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return build(*args, **options)
        try:
            return cached(*args, **options)
        except TypeError:
            return build(*args, **options)

    return look_up


_expression = _remembered(lambda record, scale, **values: scaled(record.loss(**values), scale))
_score_map = _remembered(score_map)
