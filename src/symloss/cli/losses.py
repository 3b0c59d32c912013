"""``symloss losses`` lists the losses, and ``symloss certify`` measures the properties of one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from symloss.cli.output import AsJson, console, print_json


def losses(
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table instead.")] = False,
) -> None:
    """List every loss: its formula, parameters, facts, presets and source."""
    if as_json:
        print_json(_rows())
    elif as_markdown:
        typer.echo(losses_page())
    else:
        console().print(_losses_table(_rows()))


def certify(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="A loss such as 'sgce:q=0.8', 'symmetrize(focal:gamma=2)' or 'package.module:name' of your own.",
            show_default=False,
        ),
    ],
    classes: Annotated[int, typer.Option("--classes", "-c", help="Number of classes.")] = 10,
    own: Annotated[
        bool, typer.Option("--own", help="SPEC names a Python function or module of (input, target).")
    ] = False,
    normalize: Annotated[
        str | None, typer.Option("--normalize", help="Measure the loss of unit scores: l2.", show_default="raw scores")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure whether a loss is symmetric, convex, bounded, smooth ..., with counter-examples."""
    from symloss.theory.certificates import certify as measure

    certificate = measure(_load_user_code(spec) if own else spec, classes, normalize=normalize)
    if as_json:
        print_json(certificate.to_dict())
    else:
        console().print(certificate)


def _load_user_code(spec: str) -> Any:
    from symloss.own_code import load

    return load(spec, "SPEC", "a function or module of (input, target)")


def _rows() -> list[dict[str, Any]]:
    from symloss.losses.catalogue import RECORDS, SOURCES

    return [_row(record) | {"reference": SOURCES[record.source]} for record in RECORDS.values()]


def _row(record: Any) -> dict[str, Any]:
    facts = record.facts.at(10, **record.defaults)
    return {
        "name": record.name,
        "class": record.class_name,
        "formula": record.formula,
        "parameters": [vars(parameter) for parameter in record.parameters],
        "normalize": record.normalize,
        "facts": facts,
        "constants": record.constants.at(10, **record.defaults),
        "presets": {
            name: {
                "values": dict(p.values),
                "penalty": p.penalty,
                "batch_norm_scores": p.batch_norm_scores,
                "source": p.source,
            }
            for name, p in record.presets.items()
        },
        "source": record.source,
    }


def _parameter(parameter: dict[str, Any]) -> str:
    """Name, default and range of a parameter, and what stands before them in a list."""
    before, default = (", ", f" {parameter['default']:g}") if parameter["instead_of"] is None else (" or ", "")
    return f"{before}{parameter['name']}{default} {parameter['interval']}"


HEADINGS = ("name", "formula", "parameters (default, range)", "symmetric", "convex", "bounded", "source")
CAPTION = "Facts of raw scores, at the defaults, with 10 classes."


def _cells(row: dict[str, Any]) -> list[str]:
    parameters = "".join(map(_parameter, row["parameters"])).removeprefix(", ")
    marks = ["yes" if row["facts"][fact] else "-" for fact in HEADINGS[3:6]]
    return [row["name"], row["formula"], parameters, *marks, row["source"]]


def _losses_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title=f"{len(rows)} losses", caption=CAPTION, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="center" if heading in HEADINGS[3:6] else "left")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def losses_page() -> str:
    """The table of losses, their presets and their sources, as a page of the documentation."""
    rows = _rows()
    lines = ["# Losses", "", "Written by `symloss losses --markdown`. " + CAPTION, ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(row)) + " |" for row in rows]
    lines += ["", "## Presets", "", "| loss | preset | values | penalty | source |", "|---|---|---|---|---|"]
    for row in rows:
        for name, preset in row["presets"].items():
            values = ", ".join(f"{key}={value}" for key, value in preset["values"].items()) or "-"
            values += " and batch-norm scores" if preset["batch_norm_scores"] else ""
            penalty = "-" if preset["penalty"] is None else f"{preset['penalty']:g}"
            lines.append(f"| {row['name']} | {name} | {values} | {penalty} | {preset['source']} |")
    lines += ["", "## Sources", ""]
    lines += [f"- {name}: {reference}" for name, reference in {r["source"]: r["reference"] for r in rows}.items()]
    return "\n".join(lines)
