"""Suspicious labels as tasks of Label Studio, and what its annotators decided."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from symloss import checks
from symloss.fit.audit.decisions import ACCEPTED, REJECTED, RELABELLED, UNSURE, UNUSABLE, Decision
from symloss.fit.audit.scores import Audit

if TYPE_CHECKING:
    from symloss.fit.audit.annotation_tools import Suspects

EXAMPLE, LABEL, PROBLEM = "example", "label", "problem"
"""The names of the tags in the labelling interface: what is shown, and what is chosen."""
PROBLEMS = UNSURE, UNUSABLE
"""What may be chosen in place of a label."""
KEY = "symloss_audit"
"""The field of a task that says which audit it is of."""
FEW = 20
"""Up to this number of classes are buttons; more are a list to search."""
_DOLLAR = "$\u2060"  # an invisible character keeps it from the word that follows
_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def tasks(suspects: Suspects, model: str) -> list[dict[str, Any]]:
    """Return the tasks, for Label Studio's import. Each suggestion is a prediction of the ``model``."""
    key, found = audit_key(suspects.audit), []
    for each in suspects.examples:
        if suspects.root is not None and each.image is not None:
            shown: Mapping[str, Any] = {"image": _served(each.image, suspects.root)}
        else:
            shown = {"cells": each.cells} if len(each.cells) > 1 else {"text": next(iter(each.cells.values()))}
        choice = {"choices": [each.facts["suggested_label"]]}
        result = {"from_name": LABEL, "to_name": EXAMPLE, "type": "choices", "value": choice}
        prediction = {"model_version": model, "score": each.probability, "result": [result]}
        data: dict[str, Any] = {KEY: key, **each.facts, **shown}
        found.append({"data": data, "predictions": [prediction]})
    return found


def storable(text: str) -> str:
    """Replace the characters that neither XML nor most data bases can hold."""
    return _UNSTORABLE.sub("\ufffd", text)


def audit_key(audit: Audit) -> str:
    """Return a text that differs between audits of other labels, classes or examples."""
    parts = hashlib.sha256(json.dumps(audit.class_names).encode())
    for numbers in (audit.positions, audit.given):
        parts.update(numbers.astype("<i8").tobytes())
    return parts.hexdigest()[:16]


def _served(image: str, root: Path) -> str:
    """Return the URL at which Label Studio serves a file below its document root."""
    if "://" in image:
        return image
    if not Path(image).is_relative_to(root):
        raise ValueError(f"Label Studio serves files below one folder; got the image {image!r}, outside of {root}.")
    return "/data/local-files/?d=" + quote(os.fsencode(Path(image).relative_to(root).as_posix()))


def interface(suspects: Suspects) -> str:
    """Return the labelling interface for the tasks, in XML."""
    if suspects.root is not None:
        shown = f'<Image name="{EXAMPLE}" value="$image" zoom="true"/>'
    elif len(suspects.columns) > 1:
        shown = f'<Table name="{EXAMPLE}" value="$cells"/>'
    else:
        shown = f'<Text name="{EXAMPLE}" value="$text" valueType="text"/>'
    layout = 'showInline="true"' if len(suspects.class_names) <= FEW else 'layout="select"'
    return "\n".join(
        [
            "<View>",
            '  <Header value="Given label: $given_label"/>',
            f'  <Choices name="{LABEL}" toName="{EXAMPLE}" choice="single" {layout}>',
            *map(_choice, suspects.class_names),
            "  </Choices>",
            f'  <Choices name="{PROBLEM}" toName="{EXAMPLE}" choice="single" showInline="true">',
            *map(_choice, PROBLEMS),
            f"  </Choices>\n  {shown}\n</View>\n",
        ]
    )


def _choice(name: str) -> str:
    # Label Studio takes $word for a field of the task, but not in an alias, which stands for the choice in results.
    alias = f" alias={quoteattr(name)}" if "$" in name else ""
    return f"    <Choice value={quoteattr(name.replace('$', _DOLLAR))}{alias}/>"


def read_decisions(path: Path, audit: Audit) -> list[Decision]:
    """Return the decisions in an export of Label Studio, in its format JSON or JSON-MIN.

    The suggested label is "accepted", the given one "rejected", any other "relabelled". "unsure" and "unusable" can be
    chosen; a skipped task, or one without a choice, is "unsure" too. (JSON-MIN leaves skipped tasks out.) Every
    annotation is a decision, the latest last. A task without any is undecided. Annotators have the e-mail address or
    number that the export has of them, or else the file's name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else, or tasks of another audit.
    """
    key, places = audit_key(audit), {int(position): place for place, position in enumerate(audit.positions)}
    numbers = {storable(name): number for number, name in enumerate(audit.class_names)}
    found: list[tuple[str, Decision]] = []
    for number, task in enumerate(_read(path), 1):
        where = f"task {number} of {path}"
        data = task.get("data") if isinstance(task, dict) and "annotations" in task else task
        if not isinstance(data, dict) or not isinstance(data.get(KEY), str):
            raise ValueError(f"{where} must be one that `symloss audit --export label-studio` wrote; got another")
        if data[KEY] != key or type(data.get("index")) is not int or data["index"] not in places:
            raise ValueError(f"{where} is about another audit, or the labels have changed since its export.")
        place = places[data["index"]]
        for annotation, label, problem in _annotations(task, where):
            if label is not None and label not in numbers:
                raise ValueError(f"{LABEL} in {where} must be a class; got {checks.brief(label)}")
            chosen = None if label is None or problem is not None else numbers[label]
            if chosen is None:
                decision = problem or UNSURE
                checks.choice(f"{PROBLEM} in {where}", decision, PROBLEMS)
            elif chosen == audit.given[place]:
                decision = REJECTED
            else:
                decision = ACCEPTED if chosen == audit.suggested[place] else RELABELLED
            made = Decision(data["index"], decision, chosen, _person(annotation) or path.stem)
            found.append((str(annotation.get("updated_at")), made))
    return [decision for _, decision in sorted(found, key=itemgetter(0))]


def _read(path: Path) -> list[Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"No export of Label Studio found: {str(path)!r} does not exist.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must hold JSON; {error}") from None
    if not isinstance(document, list):
        raise ValueError(f"{path} must be Label Studio's export in its format JSON or JSON-MIN, a list of tasks.")
    return document


def _annotations(task: dict[str, Any], where: str) -> Iterator[tuple[dict[str, Any], str | None, str | None]]:
    """Yield each annotation of a task, with the label and the problem that were chosen, if any."""
    if "annotations" not in task:  # JSON-MIN has an entry for each annotation, and one for a task without any
        if task.get("annotation_id") is not None:
            yield task, _single(task.get(LABEL), LABEL, where), _single(task.get(PROBLEM), PROBLEM, where)
        return
    for each in checks.record(where, task, {"annotations": "list"})["annotations"]:
        result = checks.record(f"an annotation in {where}", each, {"result": "list"})["result"]
        choices: dict[str, list[Any]] = {LABEL: [], PROBLEM: []}
        for region in () if each.get("was_cancelled") else result:
            about = checks.record(f"a result in {where}", region, {"from_name": "str", "value": "dict"})
            if about["from_name"] not in choices:
                raise ValueError(
                    f"{where} must be annotated with the labelling interface that was exported with it; got choices "
                    f"named {checks.brief(about['from_name'])} instead of {LABEL!r}"
                )
            choices[about["from_name"]] += checks.record(where, about["value"], {"choices": "list"})["choices"]
        yield each, _single(choices[LABEL], LABEL, where), _single(choices[PROBLEM], PROBLEM, where)


def _single(chosen: Any, name: str, where: str) -> str | None:
    """Return the one text that was chosen; None if there is none."""
    texts = [chosen] if isinstance(chosen, str) else chosen or []
    if not isinstance(texts, list) or len(texts) > 1 or not all(isinstance(each, str) for each in texts):
        raise ValueError(f"{name} in {where} must be one choice; got {checks.brief(chosen)}")
    return texts[0] if texts else None


def _person(annotation: dict[str, Any]) -> str:
    found = annotation.get("completed_by", annotation.get("annotator"))  # the latter in JSON-MIN
    if isinstance(found, dict):
        found = found.get("email") or found.get("id")
    return "" if found is None else str(found)
