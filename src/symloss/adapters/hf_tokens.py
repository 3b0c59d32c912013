"""Suspicious words and spans of token classification, from the margins of sub-word tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import ArrayLike

STARTS = ("B", "S", "U")  # tags of a span's first word in BIO, BIOES and BILOU


def suspicious_words(
    margins: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    word_ids: Sequence[Sequence[int | None]],
    *,
    predicted: Sequence[ArrayLike] | None = None,
    class_names: Sequence[str] | None = None,
    words: Sequence[Sequence[str]] | None = None,
) -> Any:
    """Return the labelled words of token classification as a pandas DataFrame, the most suspicious first.

    The margin of a word is the mean over its labelled tokens, and its label is that of the first of them. So it does
    not matter whether all sub-words of a word are labelled, or the first one alone.

    Args:
        margins: of each example (T,), by ``MarginCallback.by_token``.
        labels: of each example (T,), as class numbers; -100 where a token has no label.
        word_ids: of each example (T,), the word that a token belongs to, by ``BatchEncoding.word_ids``.
        predicted: of each example (T,) or more, predicted class numbers, for suggestions; None for none.
        class_names: the names of the classes; None for their numbers.
        words: of each example, its words as text; None to leave them out.

    Returns:
        A row for each word that has been seen: ``row`` (the example), ``word`` (its number), ``text``, ``given`` and
        ``suggested`` (labels), ``margin``.

    >>> suspicious_words([[2.0, -1.0, 0.0]], [[0, 1, 1]], [[0, 1, 1]], class_names=["O", "B-PER"])
       row  word  given  margin
    0    0     1  B-PER    -0.5
    1    0     0      O     2.0
    """
    found = []
    for row, (margin, given, ids) in enumerate(zip(margins, labels, word_ids, strict=True)):
        values, numbers = np.asarray(margin), np.asarray(given)
        if not len(values) == len(numbers) == len(ids):
            raise ValueError(
                "margins, labels and word_ids must have the same tokens; example "
                f"{row} has {len(values)}, {len(numbers)} and {len(ids)}"
            )
        tokens: dict[int, list[int]] = {}
        for token, word in enumerate(ids):
            if word is not None and numbers[token] != -100 and not np.isnan(values[token]):
                tokens.setdefault(word, []).append(token)
        for word, places in tokens.items():
            entry: dict[str, Any] = {"row": row, "word": word}
            entry |= {} if words is None else {"text": words[row][word]}
            entry["given"] = numbers[places[0]]
            entry |= {} if predicted is None else {"suggested": np.asarray(predicted[row])[places[0]]}
            found.append(entry | {"margin": float(values[places].mean())})
    frame = pd.DataFrame(found, columns=list(found[0]) if found else ["row", "word", "given", "margin"])
    if class_names is not None:
        for column in frame.columns.intersection(["given", "suggested"]):
            frame[column] = np.array(class_names, dtype=object)[frame[column].to_numpy(int)]
    return frame.sort_values("margin", kind="stable", ignore_index=True)


def suspicious_spans(words: Any) -> Any:
    """Return the labelled spans as a pandas DataFrame, the most suspicious first: one wrong word makes a span wrong.

    Args:
        words: by :func:`suspicious_words`, with labels such as "B-PER", "I-PER" and "O" (BIO, BIOES or BILOU).

    Returns:
        A row for each span: ``row`` (the example), ``start`` and ``end`` (the number of its first word, and of the
        word behind it), ``text`` (where ``words`` has it), ``given`` (its type) and ``margin`` (the lowest of its
        words).

    >>> given = [("B-PER", 0, 1.0), ("I-PER", 1, -2.0), ("O", 2, 3.0), ("B-PER", 3, 0.5)]
    >>> suspicious_spans(pd.DataFrame([{"row": 0, "word": k, "given": g, "margin": m} for g, k, m in given]))
       row  start  end given  margin
    0    0      0    2   PER    -2.0
    1    0      3    4   PER     0.5
    """
    frame = words.sort_values(["row", "word"])
    tags = frame["given"].astype(str).str
    frame = frame.assign(tag=tags.replace(r"-.*", "", regex=True), given=tags.replace(r"^[^-]*-?", "", regex=True))
    frame = frame[frame["given"] != ""]  # outside of all spans
    before = frame.shift()
    follows = (frame["row"] == before["row"]) & (frame["word"] == before["word"] + 1)
    follows &= (frame["given"] == before["given"]) & ~frame["tag"].isin(STARTS)
    kept = {"row": ("row", "first"), "start": ("word", "first"), "end": ("word", lambda word: word.iloc[-1] + 1)}
    kept |= {"text": ("text", " ".join)} if "text" in frame else {}
    spans = frame.groupby((~follows).cumsum()).agg(**kept, given=("given", "first"), margin=("margin", "min"))
    return spans.sort_values("margin", kind="stable", ignore_index=True)
