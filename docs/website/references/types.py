"""Types as short text."""

import types
import typing
from typing import Any


def type_name(found: Any) -> str:
    """Returns an annotation without the names of modules."""
    origin, arguments = typing.get_origin(found), typing.get_args(found)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(each) for each in arguments)
    if origin is tuple and arguments[-1:] == (...,):
        return f"list of {type_name(arguments[0])}"
    if origin is not None:
        return f"{getattr(origin, '__name__', origin)} of {', '.join(type_name(each) for each in arguments)}"
    if found is type(None):
        return "null"
    return str(getattr(found, "__name__", found))
