"""Models of somebody's: one takes its process down with it, one tells which process it is in, and then stands still."""

import os
import pathlib
import signal
import time

from torch import nn


def killed(input_shape, classes):
    os.kill(os.getpid(), signal.SIGKILL)


class _Stands(nn.Linear):
    steps = 0

    def forward(self, inputs):
        self.steps += self.training
        if self.steps > 1:
            time.sleep(100)
        return super().forward(inputs.flatten(1))


def stands(input_shape, classes):
    pathlib.Path(f"pid-{os.getpid()}").touch()
    return _Stands(64, classes)
