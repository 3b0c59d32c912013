"""Texts of anybody's, harmless where they are shown: in a terminal, in JSON, in a spreadsheet."""

from __future__ import annotations

import re

# Control characters of both sets, characters that turn the direction of writing, ends of lines and paragraphs, and
# halves of characters, which no stream can write.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# As in a cell; full-width ones too, which some spreadsheets take for the same.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def visible(text: str, keep: str = "") -> str:
    r"""A text that steers no terminal: control characters are written as Python writes them, but for those to keep.

    >>> print(visible("\x1b[2Jcat\nsymloss: all is well"))
    \x1b[2Jcat\nsymloss: all is well
    """
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def visible_json(document: str) -> str:
    r"""The same JSON, that steers no terminal.

    >>> print(visible_json('"\x9b2J"'))
    "\u009b2J"
    """
    return _STEERING.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document)


def plain(value: str) -> str:
    """A text that no spreadsheet takes for a formula; a number is none.

    >>> plain("=1+1"), plain("ce"), plain("-1")
    ("'=1+1", 'ce', '-1')
    """
    if _NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.lstrip()[:1] in _FORMULA or value[:1] in ("\t", "\r", "\n") else value
