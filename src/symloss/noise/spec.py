"""Specs of label noise: ``sym:0.6``, ``pair:0.3``, ``human:worst``, ..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from symloss import checks

FLIP_KINDS = ("sym", "asym", "asym-blocks", "asym-superclass", "pair", "instance")
"""Their rate is the probability that a label is moved to another class."""

MIXTURE_KINDS = ("sym-any", "prior")
"""Their rate is the weight p of a draw that may hit the true class again."""

KINDS = ("clean", *FLIP_KINDS, *MIXTURE_KINDS, "matrix", "human")


class HumanSource(NamedTuple):
    """Where human labels are: the publisher's file, and the keys of noisy and of clean labels in it."""

    file: str
    noisy: str
    clean: str


HUMAN = {
    "aggregate": HumanSource("CIFAR-10_human.pt", "aggre_label", "clean_label"),
    "random1": HumanSource("CIFAR-10_human.pt", "random_label1", "clean_label"),
    "random2": HumanSource("CIFAR-10_human.pt", "random_label2", "clean_label"),
    "random3": HumanSource("CIFAR-10_human.pt", "random_label3", "clean_label"),
    "worst": HumanSource("CIFAR-10_human.pt", "worse_label", "clean_label"),
    "fine": HumanSource("CIFAR-100_human.pt", "noisy_label", "clean_label"),
    "coarse": HumanSource("CIFAR-100_human.pt", "noisy_coarse_label", "clean_coarse_label"),
}
HUMAN_LABELS = (
    "download the zip of CIFAR-10N and CIFAR-100N (licence CC BY-NC 4.0) from "
    "https://github.com/UCSC-REAL/cifar-10-100n "
    "and unpack CIFAR-10_human.pt and CIFAR-100_human.pt into {root}"
)
"""How to get the publisher's files."""


@dataclass(frozen=True)
class Spec:
    """A kind of noise with what it needs: a rate, the name of a set of human labels, or the path of a file.

    >>> str(Spec("sym", rate=0.6)), str(Spec("human", name="worst", path="labels.pt"))
    ('sym:0.6', 'human:worst@labels.pt')
    """

    kind: str
    rate: float | None = None
    name: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"noise must be one of {', '.join(KINDS)}; got {checks.brief(self.kind)}")
        if self.kind in FLIP_KINDS + MIXTURE_KINDS:
            object.__setattr__(self, "rate", checks.number(f"rate of {self.kind} noise", self.rate, "[0, 1)"))
        elif self.kind == "human":
            known_human(self.name)
        takes = {"human": ("name", "path"), "matrix": ("path",), "clean": ()}.get(self.kind, ("rate",))
        for field in ("rate", "name", "path"):
            value = getattr(self, field)
            if field not in takes and value is not None:
                raise ValueError(f"{self.kind} noise must come without a {field}; got {checks.brief(value)}")
        if self.path == "" or (self.path is None and self.kind == "matrix"):
            raise ValueError(f"{self.kind} noise must come with the path of a file; got {self.path!r}")

    def __str__(self) -> str:
        if self.kind == "human":
            return f"human:{self.name}" + (f"@{self.path}" if self.path else "")
        detail = self.path if self.rate is None else repr(self.rate)
        return self.kind if detail is None else f"{self.kind}:{detail}"


def known_human(name: object) -> None:
    """Raise ValueError unless this is one of ``HUMAN``."""
    if name not in HUMAN:
        raise ValueError(f"name of human labels must be one of {', '.join(HUMAN)}; got {checks.brief(name)}")


def parse(text: str) -> Spec:
    """Parse the text of a noise spec.

    - ``clean``: none.
    - ``sym:0.6``: symmetric, to each of the other classes alike, with probability 0.6 in total.
    - ``sym-any:0.6``: with probability 0.6 a uniform draw, which may be the true class again.
    - ``asym:0.4``: between similar classes of the data set that is named; for CIFAR-100 ``asym-blocks``.
    - ``asym-blocks:0.4``: to the next class inside blocks of five consecutive label numbers, as in published tables.
    - ``asym-superclass:0.4``: to the next class inside CIFAR-100's superclasses.
    - ``pair:0.3``: to the next class.
    - ``prior:0.4``: with probability 0.4 a draw from the class frequencies (or from a prior that is given).
    - ``instance:0.4``: dependent on the input.
    - ``matrix:PATH``: any transition matrix (npy, npz, csv, json), with a row for each true class.
    - ``human:NAME``: people's labels, aggregate, random1 to random3 or worst of CIFAR-10N, fine or coarse of
      CIFAR-100N; ``human:NAME@PATH`` names the file.

    With C classes a flip rate must be below (C - 1) / C; the weights of ``sym-any`` and ``prior`` must be below 1.

    >>> parse("sym:0.6")
    Spec(kind='sym', rate=0.6, name=None, path=None)
    >>> str(parse("sym-any:.50"))
    'sym-any:0.5'
    """
    if not isinstance(text, str):
        raise TypeError(f"noise must be a spec such as 'sym:0.6'; got {checks.brief(text)}")
    kind, colon, detail = text.strip().partition(":")
    kind = kind.strip().lower()
    if kind == "clean" and colon:
        raise ValueError(f"clean noise must come without a rate; got {checks.brief(text)}")
    if kind == "clean" or kind not in KINDS:
        return Spec(kind)
    if kind == "matrix":
        return Spec("matrix", path=detail)
    if kind == "human":
        name, at, path = detail.partition("@")
        return Spec("human", name=name.strip().lower(), path=path if at else None)
    try:
        rate = float(detail)
    except ValueError:
        raise ValueError(f"{kind} noise must come with a rate, as in '{kind}:0.4'; got {checks.brief(text)}") from None
    return Spec(kind, rate=rate)
