"""Make text from files and servers harmless in a terminal, in JSON and in a spreadsheet."""

from __future__ import annotations

import re

# Control characters, characters that change the direction of writing, line and paragraph separators, and surrogates,
# which no stream can write.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# The first characters of a formula in a cell. Some spreadsheets accept full-width ones too.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def visible(text: str, keep: str = "") -> str:
    r"""Write control characters as Python does, except those to keep, so that the text cannot steer a terminal.

    >>> print(visible("\x1b[2Jcat\nsymloss: all is well"))
    \x1b[2Jcat\nsymloss: all is well
    """
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def visible_json(document: str) -> str:
    r"""Escape control characters in JSON, so that it cannot steer a terminal.

    >>> print(visible_json('"\x9b2J"'))
    "\u009b2J"
    """
    return _STEERING.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document)


def plain(value: str) -> str:
    """Quote text that a spreadsheet would take for a formula. Numbers stay as they are.

    >>> plain("=1+1"), plain("ce"), plain("-1")
    ("'=1+1", 'ce', '-1')
    """
    if _NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.lstrip()[:1] in _FORMULA or value[:1] in ("\t", "\r", "\n") else value
