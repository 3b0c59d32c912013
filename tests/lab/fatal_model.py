"""A model of somebody's that takes its process down with it."""

import os
import signal


def killed(input_shape, classes):
    os.kill(os.getpid(), signal.SIGKILL)
