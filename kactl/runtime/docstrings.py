"""Descriptions of fields, read from the docstrings of their classes."""

import inspect
import re
from collections.abc import Iterable
from typing import Final

_SECTION: Final = "Attributes:"
# "name: text", or "name, name: text" for several fields with one text.
_FIELDS: Final = re.compile(r"(`?[a-z_]\w*`?(?:, `?[a-z_]\w*`?)*): ")


def summary(kind: type) -> str:
    """Returns the docstring of a class without the descriptions of its attributes, as one line per paragraph."""
    text, _, _ = inspect.cleandoc(kind.__doc__ or "").partition(_SECTION)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip())


def of_fields(kind: type, names: Iterable[str]) -> dict[str, str]:
    """Returns the description of each field that the docstrings of a class and its bases describe.

    A description is an entry below "Attributes:", or a sentence or clause `name: text` elsewhere in the docstring.
    """
    wanted = frozenset(names)
    described: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        described.update(_read(inspect.cleandoc(base.__dict__.get("__doc__") or ""), wanted))
    return described


def _read(text: str, wanted: frozenset[str]) -> dict[str, str]:
    free, _, listed = text.partition(_SECTION)
    clauses = [clause for paragraph in free.split("\n\n") for clause in re.split(r"(?<=[.;])\s+(?=`)", paragraph)]
    entries = re.split(r"\n(?=    \S)", listed)
    clauses += [part for entry in entries for part in re.split(r";\s+(?=`)", entry)]
    described: dict[str, str] = {}
    for clause in clauses:
        clause = " ".join(clause.split())
        found = _FIELDS.match(clause)
        if found is None:
            continue
        fields = [name.strip("`") for name in found[1].split(", ")]
        if all(name in wanted for name in fields):
            described.update(dict.fromkeys(fields, clause[found.end() :].rstrip(".;")))
    return described
