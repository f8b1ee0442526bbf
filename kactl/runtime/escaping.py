"""Escaping of untrusted text for one line of a log or a terminal.

Reasons, names, client ids, header fields and znodes may contain line feeds that forge a line, escape sequences that a
terminal obeys, and marks that reverse the reading direction. All of these are characters that `str.isprintable`
rejects: control and format characters, line separators, lone surrogates and unassigned code points.
"""

import json
import re
from typing import Final

# The longest `reason` that the admin API accepts; names of topics and clients are shorter.
TEXT_LENGTH_MAX: Final = 1000
_BMP_MAX: Final = 0xFFFF


def escaped(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Replace each character that is not printable by its code (`\\u000a`), and cut the text at `length_max`.

    The cut states how many characters it removed. Backslashes stay as they are: the result is for readers, and cannot
    be converted back.
    """
    cut = len(text) - length_max
    if cut <= 0 and text.isprintable():
        return text
    visible = text if cut <= 0 else text[:length_max]
    result = (
        visible
        if visible.isprintable()
        else "".join(character if character.isprintable() else _code(character) for character in visible)
    )
    return result if cut <= 0 else f"{result}... ({cut} more characters)"


def harmless(text: str) -> str:
    """Replace each character that is not printable by U+FFFD; for tables, because columns keep their width."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def harmless_lines(text: str) -> str:
    """As `harmless`, for text of several lines and with tabs, which stay: pages, remarks, error messages, CSV."""
    return text if text.isprintable() else "".join(map(_harmless_part, re.split("([\n\t])", text)))


def _harmless_part(text: str) -> str:
    return text if text in ("\n", "\t") else harmless(text)


def harmless_json(document: bytes) -> bytes:
    """Escape what is not printable in a document in JSON: a program reads the same values, and a terminal obeys none.

    Encoders of JSON escape control characters of ASCII, and neither DEL and C1 nor marks of direction.
    """
    if document.isascii() and b"\x7f" not in document:
        return document
    return "\n".join(_json_line(line) for line in document.decode().split("\n")).encode()


def _json_line(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1].replace("\x7f", "\\u007f") for c in line)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number <= _BMP_MAX else f"\\U{number:08x}"
