"""Small pictures of examples, for pages."""

from __future__ import annotations

import io

from PIL import Image

from symloss.data.dataset import ImageFiles, Inputs
from symloss.data.images import picture

SIDE = 96
"""Pixels of the longer side, at most. A smaller image stays as it is."""


def thumbnail(inputs: Inputs, position: int) -> bytes | None:
    """The image at a position as a PNG file; None if the inputs are no images."""
    if isinstance(inputs, ImageFiles):
        image = picture(inputs.paths[position])
    elif inputs.dim() == 4 and not inputs.is_floating_point():
        pixels = inputs[position].cpu().numpy()
        image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    else:
        return None
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
