"""Asymmetric noise: which class each class is mistaken for."""

from __future__ import annotations

from symloss import checks

DIGITS = {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
CIFAR10 = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}
"""truck to automobile, bird to airplane, cat and dog to each other, deer to horse."""

MAPS = {"mnist": DIGITS, "digits": DIGITS, "cifar10": CIFAR10}

# Fine and coarse labels of CIFAR-100 are numbered in alphabetical order, each on its own.
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}


def cifar100_coarse() -> list[int]:
    """The superclass of each of CIFAR-100's fine classes.

    >>> cifar100_coarse()[:5]  # apple, aquarium_fish, baby, bear, beaver
    [4, 1, 14, 8, 0]
    """
    coarse = {fine: number for number, group in enumerate(SUPERCLASSES.values()) for fine in group.split()}
    return [coarse[fine] for fine in sorted(coarse)]


def rotation(groups: list[int]) -> dict[int, int]:
    """Each class is mistaken for the next one of its group, the last for the first.

    >>> rotation([0, 1, 0, 1, 0])
    {0: 2, 2: 4, 4: 0, 1: 3, 3: 1}
    """
    target: dict[int, int] = {}
    for group in sorted(set(groups)):
        members = [label for label, its_group in enumerate(groups) if its_group == group]
        target.update(zip(members, members[1:] + members[:1], strict=True))
    return target


def plain_kind(kind: str, dataset: str | None) -> str:
    """What ``asym`` stands for: on CIFAR-100 ``asym-blocks``, as in published tables.

    >>> plain_kind("asym", "cifar100"), plain_kind("asym", "cifar10")
    ('asym-blocks', 'asym')
    """
    return "asym-blocks" if kind == "asym" and _plain(dataset) == "cifar100" else kind


def mistakes(kind: str, classes: int, dataset: str | None) -> dict[int, int]:
    """Which class each class is mistaken for. A class that is not in the result keeps its labels."""
    if kind == "pair":
        return rotation([0] * classes)
    name, kind = _plain(dataset), plain_kind(kind, dataset)
    if kind == "asym-blocks":
        if classes % 5:
            raise ValueError(f"classes must be a multiple of five for asym-blocks noise; got {classes}")
        return rotation([label // 5 for label in range(classes)])
    if kind == "asym-superclass":
        _expect_classes("asym-superclass noise", classes, 100)
        return rotation(cifar100_coarse())
    if name not in MAPS:
        raise ValueError(
            f"dataset must be one of {', '.join([*MAPS, 'cifar100'])} for asym noise; got {checks.brief(dataset)} "
            "(pair and matrix noise work for every data set)"
        )
    _expect_classes(f"asym noise on {name}", classes, 10)
    return MAPS[name]


def _plain(dataset: str | None) -> str:
    return "" if dataset is None else dataset.lower().replace("-", "").replace("_", "")


def _expect_classes(what: str, classes: int, wanted: int) -> None:
    if classes != wanted:
        raise ValueError(f"classes must be {wanted} for {what}; got {classes}")
