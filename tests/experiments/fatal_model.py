"""Models of somebody's, of digits: one takes its process down with it, the others stand still in the middle."""

import os
import signal
import time
from pathlib import Path

from torch import nn

BUILT = 0


def killed(input_shape, num_classes):
    os.kill(os.getpid(), signal.SIGKILL)


class _Held(nn.Linear):
    """Asks before each step of the training, by its number."""

    def __init__(self, num_classes, before_step):
        super().__init__(64, num_classes)
        self.steps, self.before_step = 0, before_step

    def forward(self, inputs):
        if self.training:
            self.steps += 1
            self.before_step(self.steps)
        return super().forward(inputs.flatten(1))


def stands(input_shape, num_classes):
    """Tells which process it is in."""
    Path(f"pid-{os.getpid()}").touch()
    return _Held(num_classes, lambda step: step > 1 and time.sleep(100))


def waits(input_shape, num_classes):
    """After an epoch of two steps, until the file that the environment names is there."""

    def wait(step):
        while step > 2 and not Path(os.environ["GO_ON"]).exists():
            time.sleep(0.01)

    return _Held(num_classes, wait)


def logged(input_shape, num_classes):
    """Leaves a line in a file each time it is built; stands still at the step of the run that the environment names."""
    global BUILT  # noqa: PLW0603
    BUILT += 1
    with open("built", "a") as file:
        file.write(f"{os.getpid()}\n")
    held = str(BUILT) == os.environ.get("HOLD_RUN")

    def hold(step):
        if held and str(step) == os.environ["HOLD_STEP"]:
            Path("held").touch()
            signal.pause()

    return _Held(num_classes, hold)
