"""Robust losses for noisy labels in PyTorch.

>>> import torch, symloss
>>> loss = symloss.AlphaMAE(alpha=2.0)           # instead of torch.nn.CrossEntropyLoss()
>>> round(loss(torch.zeros(8, 10), torch.zeros(8, dtype=torch.long)).item(), 4)
18.0

Names are imported on first use: ``import symloss`` does not import torch. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach

__version__ = "0.2.0.dev0"

__getattr__, __dir__ = attach(__name__, "symloss.losses")
