"""A network of the user's choice: how it is built, whether it fits the data, and what a training costs."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from symloss import checks
from symloss.fit.candidates import Factory
from symloss.fit.stacked import LEARNING_RATE, NetworkSchedule
from symloss.training.models import create_model, has_pretrained_weights

PRETRAINED_RATE = 3e-4
"""The learning rate of networks whose weights were trained before, which large steps would destroy."""


SMALL_CNN = "cnn4:width=0.5"
SMALLEST_SIDE = 12
"""Images with fewer pixels a side are flattened. On digits other learners than networks lead."""


@dataclass(frozen=True)
class NetworkModel:
    """Builds networks for inputs of one shape.

    Args:
        model: a name for :func:`symloss.training.models.create_model`, or a factory.
        input_shape: the shape of one input.
        classes: the number of classes.
    """

    model: str | Factory
    input_shape: tuple[int, ...]
    classes: int

    def build(self, seed: int) -> nn.Module:
        """A network whose weights depend on the seed alone."""
        if isinstance(self.model, str):
            return create_model(self.model, input_shape=self.input_shape, num_classes=self.classes, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            built = self.model(self.input_shape, self.classes)
            if not isinstance(built, nn.Module):
                raise TypeError(f"model must return a torch.nn.Module; got {type(built).__name__}")
            if any(isinstance(p, UninitializedParameter) for p in built.parameters()):
                self._scores(built.eval())  # Lazy layers get their weights from the first inputs.
        return built

    @property
    def learning_rate(self) -> float:
        """What Adam begins with."""
        pretrained = isinstance(self.model, str) and has_pretrained_weights(self.model)
        return PRETRAINED_RATE if pretrained else LEARNING_RATE

    @property
    def multiply_adds(self) -> int:
        """How many multiplications with an addition the scores of one input take."""
        return self._work[0]

    @functools.cached_property
    def _work(self) -> tuple[int, int]:
        """Multiply-adds of one input, and the number of parameters. The model is tried on two inputs for that."""
        net = self.build(0).eval()
        parameters = sum(p.numel() for p in net.parameters())
        with FlopCounterMode(display=False) as counter:
            scores = self._scores(net)
        if not isinstance(scores, Tensor) or scores.shape != (2, self.classes):
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"model must turn inputs {(2, *self.input_shape)} into scores {(2, self.classes)}; got {got}"
            )
        # Two operations each, for two inputs. Where torch cannot count them, every parameter is used once.
        return max(counter.get_total_flops() // 4, parameters), parameters

    @torch.no_grad()
    def _scores(self, net: nn.Module) -> object:
        """What a network makes of two inputs."""
        inputs = torch.zeros(2, *self.input_shape)
        try:
            return net(inputs)
        except Exception as error:
            # A network of the user's may raise anything.
            reason = checks.brief(" ".join(str(error).split()) or type(error).__name__)
            raise ValueError(f"model must take inputs {tuple(inputs.shape)}; got an error ({reason})") from error

    def seconds(self, rows: int) -> float:
        """About how long one core takes to train one network to the end on so many rows, by a formula."""
        schedule = NetworkSchedule.of(rows)
        steps = schedule.epochs * max(1, rows // schedule.batch)
        multiply_adds, parameters = self._work
        return steps * (3e-3 + 4e-9 * parameters + schedule.batch * multiply_adds * 2.2e-10)


def chosen_model(model: object, input_shape: tuple[int, ...], classes: int) -> NetworkModel | None:
    """The networks to train one by one. None stands for the perceptrons that are trained stacked.

    Args:
        model: "auto", a name, or a factory.
        input_shape: the shape of one input.
        classes: the number of classes.

    >>> chosen_model("auto", (64,), 10), chosen_model("auto", (1, 8, 8), 10)
    (None, None)
    >>> chosen_model("auto", (3, 32, 32), 10).model
    'cnn4:width=0.5'
    """
    if isinstance(model, str):
        if model != "auto":
            return NetworkModel(model, input_shape, classes)
        large = len(input_shape) == 3 and min(input_shape[1:]) >= SMALLEST_SIDE
        return NetworkModel(SMALL_CNN, input_shape, classes) if large else None
    if isinstance(model, nn.Module) or not callable(model):
        raise TypeError(
            'model must be "auto", a name, or a function of input_shape and num_classes that returns a module; '
            f"got {checks.brief(model)}"
        )
    return NetworkModel(model, input_shape, classes)
