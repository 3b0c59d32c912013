"""Models of somebody's: one takes its process down with it, the others stand still in the middle."""

import os
import pathlib
import signal
import time

from torch import nn


def killed(input_shape, num_classes):
    os.kill(os.getpid(), signal.SIGKILL)


class _Stands(nn.Linear):
    steps = 0

    def forward(self, inputs):
        self.steps += self.training
        if self.steps > 1:
            time.sleep(100)
        return super().forward(inputs.flatten(1))


def stands(input_shape, num_classes):
    """Tells which process it is in."""
    pathlib.Path(f"pid-{os.getpid()}").touch()
    return _Stands(64, num_classes)


class _Waits(nn.Linear):
    """Of two steps in an epoch."""

    steps = 0

    def forward(self, inputs):
        self.steps += self.training
        while self.steps > 2 and not pathlib.Path(os.environ["GO_ON"]).exists():
            time.sleep(0.01)
        return super().forward(inputs.flatten(1))


def waits(input_shape, num_classes):
    """Until the file that the environment names is there."""
    return _Waits(64, num_classes)
