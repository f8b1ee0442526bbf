"""Descriptions of the values that a configuration key accepts, for errors."""

from typing import Any

import msgspec
from msgspec import inspect


def accepted(expected: Any) -> str:
    """Returns the values of a key's type in words, as in `true or false` or `a whole number of at least 1`."""
    return _words(inspect.type_info(expected))


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _words(kind.type)
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_bounds(kind)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind)}"
        case inspect.StrType():
            return f"text in quotes{_lengths(kind)}"
        case inspect.LiteralType():
            return _either([_quoted(value) for value in kind.values if value != ""])
        case inspect.VarTupleType():
            return f"a list in square brackets; each element is {_words(kind.item_type)}"
        case inspect.DictType():
            return f"a section of names, each with {_words(kind.value_type)}"
        case inspect.UnionType():
            return _either([_words(option) for option in kind.types if not isinstance(option, inspect.NoneType)])
    raise NotImplementedError(kind)


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    parts = ((" of at least", kind.ge), (" above", kind.gt), (" of at most", kind.le), (" below", kind.lt))
    return ", and".join(f"{words} {bound}" for words, bound in parts if bound is not None)


def _lengths(kind: inspect.StrType) -> str:
    if kind.min_length and kind.max_length:
        return f", with {kind.min_length} to {kind.max_length} characters"
    return ", which is not empty" if kind.min_length else ""


def _quoted(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"
