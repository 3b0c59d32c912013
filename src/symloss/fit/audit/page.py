"""An audit as one HTML page: suspicious labels to decide about, drawn by a script from JSON inside the page."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from symloss.checks import shown_score
from symloss.html_page import PAGE_STYLE, html_page, packaged
from symloss.noise.heatmap import CELLS, Transitions, Words, heat_map

if TYPE_CHECKING:
    from symloss.fit.audit.export import AuditDocument, Suspect
    from symloss.fit.audit.scores import Audit

WORDS = Words("given label", "suggested label", "Given against suggested labels", "look wrong")
SCRIPTS = "decisions", "csv", "cards", "audit"
"""The parts of the script, in their order."""
MATRIX, LIKELY = 1000, 5
"""The most classes whose matrix is shown, and how many probable classes of an example are offered first."""


def render(document: AuditDocument) -> str:
    """Return the audit as the text of an HTML file."""
    body = "\n".join([*_header(document), *_matrix(document), *_review(document)])
    style = packaged(PAGE_STYLE) + packaged("fit/audit/audit.css")
    script = "".join(packaged(f"fit/audit/{name}.js") for name in SCRIPTS) if document.suspects else ""
    return html_page(document.title, body, style, script)


def _header(document: AuditDocument) -> Iterator[str]:
    yield f'<header><p class="eyebrow">symloss audit</p><h1>{escape(document.title)}</h1></header>'
    if document.notice:
        yield f'<p class="notice" role="note">{escape(document.notice)}</p>'
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in document.facts)
    link = '<p><a href="#labels">Go to the labels</a></p>' if document.suspects else ""
    yield f'<section aria-label="What was audited"><dl class="facts">{facts}</dl>{link}</section>'


def _matrix(document: AuditDocument) -> Iterator[str]:
    if not document.audit.flagged.any() or len(document.audit.class_names) > MATRIX:
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
    shown = len(document.suspects)
    yield '<section class="table review" id="labels"><h2>Suspicious labels</h2>'
    if not shown:
        nothing = "No label looks wrong." if not document.notice else "No labels are listed."
        yield f'<p class="caption">{nothing}</p></section>'
        return
    count = f"All {shown:,} labels that look wrong are" if shown > 1 else "The label that looks wrong is"
    reader = f" for <code>{escape(document.reader)}</code>" if document.reader else ""
    yield (
        f'<p class="caption">{count} listed, the most suspicious first. This browser remembers your decisions. '
        f"Save them as a CSV{reader}, and load the files of others to see where you differ.</p>"
        f"{packaged('fit/audit/review.html')}</section>"
        f'<script type="application/json" id="data">{_json(_data(document))}</script>'
    )


def _data(document: AuditDocument) -> dict[str, Any]:
    """Return what the script draws: classes and columns once, and lists with an item for each suspicious label."""
    audit, suspects = document.audit, document.suspects
    places = np.array([suspect.place for suspect in suspects])
    return {
        "key": document.key,
        "classes": audit.class_names,
        "columns": document.columns,
        "kind": "pictures" if suspects[0].picture is not None else "rows" if document.columns else "plain",
        "files": document.files is not None,
        "index": audit.positions[places].tolist(),
        "row": None if document.rows is None else [document.rows[place] for place in places.tolist()],
        "given": audit.given[places].tolist(),
        "suggested": audit.suggested[places].tolist(),
        "likely": [_likely(audit, place) for place in places.tolist()],
        "score": [shown_score(score) for score in audit.label_scores[places].tolist()],
        **_shown(document, suspects),
        "typical": {number: _shown(document, examples) for number, examples in document.typical.items()},
    }


def _likely(audit: Audit, place: int) -> list[int]:
    """Return the most probable classes of an example, the first one first."""
    if audit.pred_probs is None:
        return []
    chances = audit.pred_probs[place]
    first = np.argpartition(-chances, min(LIKELY, len(chances)) - 1)[:LIKELY]
    ranked: list[int] = first[np.argsort(-chances[first], kind="stable")].tolist()
    return ranked


def _shown(document: AuditDocument, examples: Sequence[Suspect]) -> dict[str, Any]:
    return {
        "name": [document.name(one.place) for one in examples],
        "cells": [one.cells for one in examples],
        "picture": [_address(one.picture) for one in examples],
    }


def _address(picture: bytes | None) -> str | None:
    if picture is None:
        return None
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def _json(data: dict[str, Any]) -> str:
    """Return JSON that cannot end its script element. Lone surrogates of file names are escaped when it is encoded."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
