"""Pictures by class, some of them in a wrong folder, to try ``symloss fit`` on: python wrong_folders.py FOLDER

``digits``: 640 digits of scikit-learn (0 to 3) as pictures of several sizes. ``--kind shapes``: 300 photos of 640 x 480
with a circle, a square or a triangle somewhere, which are hard to tell by their pixels. The name of a file begins with
its true class, which nothing but ``--check`` reads: it says how good a list of wrong labels is.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits

DIGITS = ("zero", "number one", "two", "three")
SHAPES = ("circle", "square", "triangle")


def digits(rng: random.Random) -> Iterator[tuple[int, Image.Image]]:
    """640 pictures, and the number of their class."""
    source = load_digits()
    kept = [place for place, label in enumerate(source.target) if label < len(DIGITS)][:640]
    for place in kept:
        side = rng.choice([24, 24, 28, 32])
        pixels = np.uint8(source.images[place] / 16 * 255)
        picture = Image.fromarray(pixels).resize((side, side + rng.choice([0, 4])), Image.Resampling.BICUBIC)
        yield int(source.target[place]), picture.convert("RGB")


def shapes(rng: random.Random) -> Iterator[tuple[int, Image.Image]]:
    """300 photos, and the number of their class."""
    for number in range(300):
        noise = np.random.default_rng(number).integers(0, 90, (60, 80, 3), dtype=np.uint8)
        picture = Image.fromarray(noise).resize((640, 480))
        size = rng.randint(120, 240)
        x, y, colour = rng.randint(0, 640 - size), rng.randint(0, 480 - size), (rng.randint(120, 255),) * 3
        draw, box = ImageDraw.Draw(picture), (x, y, x + size, y + size)
        if number % 3 == 0:
            draw.ellipse(box, fill=colour)
        elif number % 3 == 1:
            draw.rectangle(box, fill=colour)
        else:
            draw.polygon([(x, y + size), (x + size, y + size), (x + size // 2, y)], fill=colour)
        yield number % 3, picture


def write(folder: Path, kind: str, wrong: float) -> None:
    """Write the pictures; each is in a wrong folder with the probability ``wrong``."""
    rng, names = random.Random(0), DIGITS if kind == "digits" else SHAPES
    count = misplaced = 0
    for true, picture in digits(rng) if kind == "digits" else shapes(rng):
        given = rng.choice([k for k in range(len(names)) if k != true]) if rng.random() < wrong else true
        path = folder / names[given] / f"{names[true]} - {count}.{rng.choice(['png', 'jpg'])}"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path, compress_level=1)  # of PNG: the usual level takes seven times as long
        count, misplaced = count + 1, misplaced + (given != true)
    print(f"{count} pictures in {folder}, {misplaced} of them in a wrong folder")


def check(audit: Path) -> None:
    """Compare a list of wrong labels with the names of the files."""
    with audit.open(newline="") as file:
        rows = list(csv.DictReader(file))
    true = [Path(row["file"]).name.split(" - ")[0] for row in rows]
    wrong = [name != row["given_label"] for name, row in zip(true, rows, strict=True)]
    flagged = [row["is_label_issue"] == "True" for row in rows]
    right = [name == row["predicted_label"] for name, row in zip(true, rows, strict=True)]
    found = sum(a and b for a, b in zip(wrong, flagged, strict=True))
    suggested = sum(a and b for a, b in zip(flagged, right, strict=True))
    print(
        f"{sum(flagged)} flagged, {found} of them wrong, {suggested} with the right suggestion; {sum(wrong)} are wrong"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=["digits", "shapes"], default="digits")
    parser.add_argument("--wrong", type=float, default=0.25, help="the share of pictures in a wrong folder")
    parser.add_argument("--check", type=Path, metavar="AUDIT.CSV", help="write nothing, and rate this list")
    chosen = parser.parse_args()
    if chosen.check:
        check(chosen.check)
    else:
        write(chosen.folder, chosen.kind, chosen.wrong)


if __name__ == "__main__":
    main()
