"""``symloss losses``, ``certify``, ``cite`` and ``atlas``: the losses as a list, measured, cited and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from symloss import __version__, own_code
from symloss.cli.options import AsJson, argument, flag, option
from symloss.cli.output import bar, console, print_data, print_json, print_rows, say
from symloss.losses.published import PAPER, PUBLICATIONS, SOURCES

# As in CITATION.cff, which is not installed with the package.
SOFTWARE = f"""@misc{{symloss,
  author = {{{{the symloss authors}}}},
  title = {{{{symloss: losses for PyTorch that stay right when the labels are wrong}}}},
  note = {{Version {__version__}}},
}}"""
HEADINGS = ("name", "formula", "parameters (default, range)", "symmetric", "convex", "bounded", "source")
CAPTION = "Facts of raw scores, at the defaults, with 10 classes."


def losses(as_json: AsJson = False) -> None:
    """List every loss: formula, parameters, properties, presets and source."""
    if as_json:
        print_json(loss_rows())
    else:
        rows = [dict(zip(HEADINGS, loss_cells(row), strict=True)) for row in loss_rows()]
        print_rows(rows, f"{len(rows)} losses", CAPTION, dict.fromkeys(HEADINGS[3:6], "center"))


def certify(
    spec: Annotated[
        str,
        argument(
            "Loss, such as 'sgce:q=0.8', 'symmetrize(focal:gamma=2)' or your own 'package.module:name'.", metavar="SPEC"
        ),
    ],
    classes: Annotated[int, typer.Option("--classes", "-c", help="Number of classes.")] = 10,
    own: Annotated[bool, flag("SPEC names a Python function or module of (input, target).", "--own")] = False,
    normalize: Annotated[
        str | None, typer.Option("--normalize", help="Normalize logits first: l2.", show_default="none")
    ] = None,
    theorem: Annotated[
        bool, flag("Print which assumptions of theorem 5.1 hold, and the distance from unhinged.", "--theorem")
    ] = False,
    margin: Annotated[
        bool, flag("SPEC is a binary loss of the margin, such as 'logistic'; with --own a function of it.", "--margin")
    ] = False,
    radius: Annotated[float, typer.Option("--radius", help="Largest margin, with --margin.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Check whether a loss is symmetric, convex, bounded and smooth, with counter-examples."""
    from symloss.theory.certificates import certify as measure

    if margin:
        if normalize:
            raise ValueError("`--normalize` must be left out with `--margin`: a margin is a single number")
        _certify_margin(spec, own, radius, as_json)
        return
    loss: Any = own_code.load(spec, "SPEC", "a function or module of (input, target)") if own else spec
    certificate = measure(loss, classes, normalize=normalize)
    shown = certificate.theorem() if theorem else certificate
    if as_json:
        print_json(shown.to_dict())
    else:
        console().print(str(shown) if theorem else shown, markup=False, highlight=False)


def _certify_margin(spec: str, own: bool, radius: float, as_json: bool) -> None:
    from symloss.theory.margin_certificates import certify_margin

    phi: Any = own_code.load(spec, "SPEC", "a function of margins") if own else spec
    card = certify_margin(phi, radius)
    if as_json:
        print_json(card.to_dict())
    else:
        print_data(f"{card}\n")


def loss_rows() -> list[dict[str, Any]]:
    """Return all that is known of each loss, for JSON."""
    from symloss.losses.catalogue import RECORDS

    return [
        {name: getattr(record, name) for name in ("name", "formula", "normalize", "source")}
        | {
            "class": record.class_name,
            "parameters": [vars(parameter) for parameter in record.parameters],
            "facts": record.facts.at(10, **record.defaults),
            "constants": record.constants.at(10, **record.defaults),
            "presets": {name: vars(p) | {"values": dict(p.values)} for name, p in record.presets.items()},
            "reference": SOURCES[record.source],
        }
        for record in RECORDS.values()
    ]


def _parameter(parameter: dict[str, Any]) -> str:
    """Name, default and range of a parameter, and what stands before them in a list."""
    before, default = (", ", f" {parameter['default']:g}") if parameter["instead_of"] is None else (" or ", "")
    return f"{before}{parameter['name']}{default} {parameter['interval']}"


def loss_cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a loss in the table of all losses, below ``HEADINGS``."""
    parameters = "".join(map(_parameter, row["parameters"])).removeprefix(", ")
    marks = ["yes" if row["facts"][fact] else "-" for fact in HEADINGS[3:6]]
    return [row["name"], row["formula"], parameters, *marks, row["source"]]


def cite(
    losses: Annotated[
        list[str] | None, argument("Losses, such as sgce or nce+rce; none for symloss and its paper.", metavar="LOSS")
    ] = None,
) -> None:
    """Print BibTeX entries for losses, or for symloss and its paper.

    To extend a bibliography: symloss cite sgce gce >> references.bib
    """
    entries = [PUBLICATIONS[PAPER].bibtex, SOFTWARE] if losses is None else list(dict.fromkeys(map(_entry, losses)))
    print_data("\n\n".join(entries) + "\n")


def _entry(loss: str) -> str:
    from symloss.losses.spec import find, parse

    record = find(parse(loss)[0])
    if record.source in PUBLICATIONS:
        return PUBLICATIONS[record.source].bibtex
    return f"% {record.name} is {SOURCES[record.source]}, which is in every textbook: there is nothing to cite."


def atlas(
    out: Annotated[Path, option("HTML file to write.", "--out", "-o")] = Path("atlas.html"),
    losses: Annotated[
        str | None,
        option(
            "Only these losses, such as ce,sgce,'0.5*ce + mae' or your own module:name.",
            "--losses",
            "-l",
            shown="the whole catalogue",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        option("Folder for figures of --losses as SVG and PDF, for a paper.", shown="none"),
    ] = None,
) -> None:
    """Write an interactive page: every loss as curves and maps, and how label noise moves its minimum.

    The page is a single file that needs no network.
    """
    from symloss.atlas import write_atlas, write_figures
    from symloss.atlas.data import drawn_losses
    from symloss.losses.spec import split

    specs = None if losses is None else [spec for spec in split(losses) if spec]
    drawn = drawn_losses(specs)
    if figures is not None:
        written = write_figures(figures, specs)
        say(f"{len(written)} figures are in {figures}")
    with bar() as shown:
        task = shown.add_task("atlas", total=len(drawn))
        write_atlas(out, specs, lambda number: shown.update(task, completed=number))
    say(f"written to {out} ({out.stat().st_size / 1e6:.1f} MB)")
