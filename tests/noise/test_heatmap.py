"""The transition matrix of many classes as a bitmap, read by another library than the one that writes it."""

import base64
import io

import numpy as np
from PIL import Image

from symloss.noise.heatmap import CELLS, INK, Transitions, heat_map


def test_many_classes_are_a_picture_whose_pixels_are_the_rates():
    count = CELLS + 1
    counts = np.eye(count, dtype=np.int64) * 3
    counts[0, 5] = 1
    page = heat_map(Transitions(tuple(map(str, range(count))), counts, draws=1))
    picture = Image.open(io.BytesIO(base64.b64decode(page.partition("base64,")[2].partition('"')[0])))
    pixels = np.asarray(picture)
    assert (picture.format, pixels.shape) == ("PNG", (count, count, 4))
    assert (pixels[..., :3] == INK).all()
    rates = np.eye(count)
    rates[0, 0], rates[0, 5] = 0.75, 0.25
    np.testing.assert_array_equal(pixels[..., 3], np.rint(255 * np.sqrt(rates)))
