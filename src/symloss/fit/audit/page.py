"""An audit as one HTML page: suspicious labels to accept or reject, and a CSV of the decisions."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from symloss.checks import shown_score
from symloss.html_page import PAGE_STYLE, html_page, packaged
from symloss.noise.heatmap import CELLS, Transitions, Words, heat_map

if TYPE_CHECKING:
    from symloss.fit.audit.export import AuditDocument, Suspect

WORDS = Words("given label", "suggested label", "Given against suggested labels", "look wrong")
KEYS = (("j", "→", "next"), ("k", "←", "back"), ("a", "", "accept"), ("r", "", "reject"), ("u", "", "undo"))
"""Keys, the arrow that does the same, and what they do."""
PAIRS = 200
"""The most pairs of classes to choose from. They are the most frequent ones."""


def render(document: AuditDocument) -> str:
    """Return the audit as the text of an HTML file."""
    body = "\n".join([*_header(document), *_matrix(document), *_review(document)])
    style = packaged(PAGE_STYLE) + packaged("fit/audit/audit.css")
    return html_page(document.title, body, style, packaged("fit/audit/audit.js"))


def _header(document: AuditDocument) -> Iterator[str]:
    yield f'<header><p class="eyebrow">symloss audit</p><h1>{escape(document.title)}</h1></header>'
    if document.notice:
        yield f'<p class="notice" role="note">{escape(document.notice)}</p>'
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in document.facts)
    yield f'<section aria-label="What was audited"><dl class="facts">{facts}</dl></section>'


def _matrix(document: AuditDocument) -> Iterator[str]:
    if not document.audit.flagged.any():
        return
    counts = np.zeros((len(document.audit.class_names),) * 2, dtype=np.int64)
    np.add.at(counts, (document.audit.given, document.audit.suggested), 1)
    transitions = Transitions(document.audit.class_names, counts, draws=1)
    pairs = "; ".join(f"{a} → {b} ({100 * rate:.1f} %)" for a, b, rate in transitions.largest(8))
    note = "Of each given label (row) the share, in %, that should rather be each class (column)."
    note += " A click on a cell shows its labels." if len(document.audit.class_names) <= CELLS else ""
    yield (
        f'<section class="table matrix"><h2>Given against suggested labels</h2><p class="caption">{note} '
        f"Most frequent: {escape(pairs)}.</p><figure>{heat_map(transitions, WORDS)}</figure></section>"
    )


def _review(document: AuditDocument) -> Iterator[str]:
    flagged, shown = int(document.audit.flagged.sum()), len(document.suspects)
    yield f'<section class="table review" data-key="{escape(document.key)}"><h2>Suspicious labels</h2>'
    if not shown:
        nothing = "No label looks wrong." if not document.notice else "No labels are listed."
        yield f'<p class="caption">{nothing}</p></section>'
        return
    part = f"All {shown:,}" if shown == flagged else f"The {shown:,} most suspicious of {flagged:,}"
    reader = f", for <code>{escape(document.reader)}</code>" if document.reader else ""
    yield (
        f'<p class="caption">{part}, the most suspicious first. Accept a suggestion, or reject it and keep the label. '
        f"The browser remembers decisions. The CSV holds those that were made{reader}.</p>{_tools(document)}"
    )
    kind = "pictures" if document.suspects[0].picture is not None else "rows" if document.columns else "plain"
    yield f'<div class="suspects {kind}">'
    yield from (_suspect(document, suspect) for suspect in document.suspects)
    yield '</div><p class="caption nothing" hidden>No label of this kind.</p></section>'


def _tools(document: AuditDocument) -> str:
    shown = [suspect.place for suspect in document.suspects]
    suggested = document.audit.suggested
    pairs = Counter((int(document.audit.given[place]), int(suggested[place])) for place in shown)
    in_pairs = {number for pair in pairs for number in pair}
    classes = "".join(_option(i, name) for i, name in enumerate(document.audit.class_names) if i in in_pairs)
    names = document.audit.class_names
    chosen = "".join(
        _option(f"{i},{j}", f"{names[i]} → {names[j]} ({count})") for (i, j), count in pairs.most_common(PAIRS)
    )
    states = "".join(_option(state, state) for state in ("undecided", "accepted", "rejected"))
    keys = " ".join(
        f"<span><kbd>{key}</kbd>{f' <kbd>{arrow}</kbd>' if arrow else ''} {what}</span>" for key, arrow, what in KEYS
    )
    return (
        f'<div class="tools"><div class="choices">{_select("class", "Class", "every class", classes)}'
        f"{_select('pair', 'Given → suggested', 'every pair', chosen)}"
        f"{_select('state', 'Decision', 'any', states)}</div>"
        '<div class="actions"><button type="button" data-act="accept-all">Accept all shown</button>'
        '<button type="button" data-act="clear">Undo all shown</button>'
        '<button type="button" class="main" data-act="download">Download CSV</button></div>'
        f'<p class="counts" aria-live="polite"></p><p class="keys">{keys}</p></div>'
    )


def _select(name: str, title: str, everything: str, options: str) -> str:
    select = f'<select name="{name}">{_option("", everything)}{options}</select>'
    return f"<label>{escape(title)} {select}</label>"


def _option(value: object, text: str) -> str:
    return f'<option value="{escape(str(value))}">{escape(text)}</option>'


def _suspect(document: AuditDocument, suspect: Suspect) -> str:
    place = suspect.place
    given, suggested = int(document.audit.given[place]), int(document.audit.suggested[place])
    name, names = document.name(place), document.audit.class_names
    score = escape(shown_score(document.audit.label_scores[place]))
    data = {"index": document.audit.positions[place], "given": given, "suggested": suggested, "from": names[given]}
    data["to"] = names[suggested]
    if document.rows is not None:
        data["row"] = document.rows[place]
    if document.files is not None:
        data["file"] = document.files[place]
    picture = ""
    if suspect.picture is not None:
        source = f"data:image/png;base64,{base64.b64encode(suspect.picture).decode()}"
        picture = f'<img alt="{escape(name)}" src="{source}">'
    attributes = "".join(f' data-{key}="{escape(str(value))}"' for key, value in data.items())
    return (
        f'<article class="suspect" tabindex="-1"{attributes}>{picture}<div class="about">'
        f'<p class="labels"><span>{escape(names[given])}</span> → <b>{escape(names[suggested])}</b></p>'
        f'<p class="which"><span>{escape(name)}</span> <span>score {score}</span></p>'
        f"{_cells(document, suspect)}"
        '</div><div class="decide"><button type="button" data-decide="accepted" aria-pressed="false">Accept</button>'
        '<button type="button" data-decide="rejected" aria-pressed="false">Reject</button></div></article>'
    )


def _cells(document: AuditDocument, suspect: Suspect) -> str:
    pairs = zip(document.columns, suspect.cells, strict=False)
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(cell) or '-'}</dd></div>" for name, cell in pairs)
    alone = " alone" if len(document.columns) == 1 else ""
    return f'<dl class="cells{alone}">{cells}</dl>' if cells else ""
