"""``symloss cite`` prints BibTeX: of the paper and the software, or of what introduced a loss."""

from __future__ import annotations

from typing import Annotated

import typer

from symloss import __version__
from symloss.cli.output import print_data

# As in CITATION.cff, which is not installed with the package.
SOFTWARE = f"""@misc{{symloss,
  author = {{{{the symloss authors}}}},
  title = {{{{symloss: losses for PyTorch that stay right when the labels are wrong}}}},
  note = {{Version {__version__}}},
}}"""


def cite(
    losses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOSS",
            help="Losses such as sgce or nce+rce (symloss losses lists them). Without any: symloss and its paper.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print BibTeX: the publication that introduced each LOSS, or, without one, the paper and the software.

    Add it to a bibliography with: symloss cite sgce gce >> references.bib
    """
    from symloss.losses.published import PAPER, PUBLICATIONS

    entries = [PUBLICATIONS[PAPER].bibtex, SOFTWARE] if losses is None else list(dict.fromkeys(map(_entry, losses)))
    print_data("\n\n".join(entries) + "\n")


def _entry(loss: str) -> str:
    from symloss.losses.published import PUBLICATIONS, SOURCES
    from symloss.losses.spec import find, parse

    record = find(parse(loss)[0])
    if record.source in PUBLICATIONS:
        return PUBLICATIONS[record.source].bibtex
    return f"% {record.name} is {SOURCES[record.source]}, which is in every textbook: there is nothing to cite."
