"""Make every figure of the documentation: python docs/figures/make.py [FOLDER]

Without a folder they are written to docs/images.
"""

from __future__ import annotations

import sys
from pathlib import Path

import appendices
import deviating_gradients
import noise_matrices
import published
import readme_picture
import sensitivity
import symmetry
import unit_scores

IMAGES = Path(__file__).parents[1] / "images"
SCRIPTS = (
    readme_picture,
    symmetry,
    published,
    noise_matrices,
    unit_scores,
    deviating_gradients,
    sensitivity,
    appendices,
)


def main() -> None:
    """Write all figures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for script in SCRIPTS:
        script.draw(folder)


if __name__ == "__main__":
    main()
