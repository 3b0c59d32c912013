"""``symloss cite`` prints BibTeX: of the paper and the software, or of what introduced a loss."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Annotated

import typer

from symloss import __version__
from symloss.cli.output import print_data

if TYPE_CHECKING:
    from symloss.losses.catalogue.references import Publication

VENUES = {
    "AAAI": "Proceedings of the AAAI Conference on Artificial Intelligence",
    "ICCV": "Proceedings of the International Conference on Computer Vision",
    "ICLR": "International Conference on Learning Representations",
    "ICML": "Proceedings of the International Conference on Machine Learning",
    "IJCAI": "Proceedings of the International Joint Conference on Artificial Intelligence",
    "NeurIPS": "Advances in Neural Information Processing Systems",
}
"""The proceedings of each conference."""
ACCENTS = {"\N{COMBINING ACUTE ACCENT}": "'", "\N{COMBINING GRAVE ACCENT}": "`"}
"""The accents in names of authors, and how LaTeX writes them."""


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
    from symloss.losses.catalogue.references import PAPER, PUBLICATIONS, Publication

    if losses is None:
        # As in CITATION.cff, which is not installed with the package.
        title, note = "symloss: losses for PyTorch that stay right when the labels are wrong", f"Version {__version__}"
        software = Publication("the symloss authors", title, note=note)
        entries = [bibtex(PUBLICATIONS[PAPER]), bibtex(software, "symloss")]
    else:
        entries = list(dict.fromkeys(map(_entry, losses)))
    print_data("\n\n".join(entries) + "\n")


def _entry(loss: str) -> str:
    from symloss.losses.catalogue.references import PUBLICATIONS, SOURCES
    from symloss.losses.spec import find, parse

    record = find(parse(loss)[0])
    if record.source in PUBLICATIONS:
        return bibtex(PUBLICATIONS[record.source])
    return f"% {record.name} is {SOURCES[record.source]}, which is in every textbook: there is nothing to cite."


def bibtex(publication: Publication, key: str | None = None) -> str:
    """The entry of a bibliography. Capitals of the title stay as they are.

    Args:
        publication: what is cited.
        key: of the entry; by default the first family name and the year.

    >>> from symloss.losses.catalogue.references import PUBLICATIONS
    >>> print(bibtex(PUBLICATIONS["Ghosh 2017"]))
    @inproceedings{ghosh2017,
      author = {Ghosh, Aritra and Kumar, Himanshu and Sastry, P. S.},
      title = {{Robust loss functions under label noise for deep neural networks}},
      booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
      year = {2017},
    }
    """
    authors, venue = publication.authors, publication.venue
    fields = {
        "author": authors if "," in authors else f"{{{authors}}}",
        "title": f"{{{publication.title}}}",
        "booktitle": VENUES[venue] if venue else None,
        "year": publication.year,
        "note": publication.note,
    }
    lines = [f"  {name} = {{{_latex(str(value))}}}," for name, value in fields.items() if value is not None]
    key = key or re.sub("[^a-z]", "", authors.partition(",")[0].lower()) + str(publication.year)
    return "\n".join([f"@{'inproceedings' if venue else 'misc'}{{{key},", *lines, "}"])


def _latex(text: str) -> str:
    """Letters with an accent as LaTeX writes them, because old versions of BibTeX read nothing else."""
    decomposed = unicodedata.normalize("NFD", text)
    return re.sub(f"(.)([{''.join(ACCENTS)}])", lambda found: f"{{\\{ACCENTS[found[2]]}{found[1]}}}", decomposed)
