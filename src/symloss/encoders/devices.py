"""Where networks run: a GPU where there is one."""

from __future__ import annotations

import torch

from symloss import checks


def chosen_device(device: str) -> torch.device:
    """Return a device by its name; "auto" takes CUDA, else Apple's GPU, else the CPU.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        gpu = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(gpu)
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = checks.shortened(str(error).partition("\n")[0])
        raise ValueError(f"`device` must be one of this machine, such as 'cpu'; got {device!r} ({reason})") from None
