"""The handwritten digits of scikit-learn, which need no download."""

from __future__ import annotations

import torch

from symloss.data.dataset import DataSet, Examples, labels_tensor, scaling_of_images


def open_digits() -> DataSet:
    """1,437 training and 360 test images (1, 8, 8), always the same: a stratified split with scikit-learn's seed 0.

    Grey values of 0 to 16 are spread over 0 to 255.
    """
    # scikit-learn takes a second to import.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # noqa: PLC0415

    digits = load_digits()
    images = torch.from_numpy(digits.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = labels_tensor(digits.target)
    places = range(len(labels))
    train, test = train_test_split(places, test_size=360, random_state=0, stratify=digits.target)
    return DataSet(
        name="digits",
        train=Examples(images[train], labels[train]),
        test=Examples(images[test], labels[test]),
        classes=tuple(str(digit) for digit in range(10)),
        scaling=scaling_of_images(images[train]),
    )
