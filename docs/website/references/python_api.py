"""Reference of the Python interface: public names, their signatures and docstrings."""

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import msgspec

import kactl
import kactl.admin
import kactl.fencing
import kactl.kafka

from .docstrings import markdown
from .types import type_name

MODULES: Final = (kactl, kactl.admin, kactl.fencing, kactl.kafka)
_MARKS: Final[dict[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_MODULE: Final = re.compile(r"\b(?:\w+\.)+(?=\w)")
# How Python 3.11 shows the fields of a TypedDict as keywords.
_UNPACKED: Final = re.compile(r"\*<class '([\w.]+)'>")
_SIMPLE: Final = (bool, int, float, str, bytes, type(None))
_LINE: Final = 100
_HEAD: Final = """# Python interface

The public names of `kactl`, `kactl.admin`, `kactl.fencing` and `kactl.kafka`; everything else may change. They are
typed, and the [changelog](../project/changelog.md) lists their changes."""


def python_page() -> str:
    """Returns the page: a section for each name, in alphabetical order within its module."""
    return "\n\n".join((_HEAD, *(part for module in MODULES for part in _module(module)))) + "\n"


def _module(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}"
    for name in sorted(module.__all__):
        found = getattr(module, name)
        yield f"### {name}"
        if inspect.isclass(found):
            yield from _class(found)
        elif inspect.isfunction(found):
            yield _code(f"{name}{_signature(found)}")
            yield markdown(found)
        else:
            yield f"A type: `{type_name(found).replace('`', '')}`."


def _class(found: type) -> Iterator[str]:
    if issubclass(found, enum.Enum):
        yield markdown(found)
        yield "Members: " + ", ".join(f"`{member.name}`" for member in found) + "."
        return
    yield _code(f"class {found.__name__}{_constructor(found)}")
    yield markdown(found)
    for name in sorted(dir(found)):
        value = inspect.getattr_static(found, name)
        if name.startswith("_") or not getattr(value, "__module__", "kactl").startswith("kactl"):
            continue
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if isinstance(value, property):
            yield f"#### {found.__name__}.{name}"
            yield markdown(value)
        elif inspect.isfunction(function):
            mark = "async " if _is_async(function) else ""
            yield f"#### {found.__name__}.{name}()"
            yield _code(f"{mark}def {name}{_signature(function)}")
            yield markdown(function)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function)


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _constructor(found: type) -> str:
    if issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found):
        return _signature(found)
    initializer = inspect.getattr_static(found, "__init__", None)
    return _signature(initializer) if inspect.isfunction(initializer) else ""


def _signature(found: Any) -> str:
    """Returns parameters and result with their types; one parameter per line if they do not fit one."""
    try:
        signature = inspect.signature(found)
    except ValueError:  # types that are implemented in C
        return ""
    shown: list[str] = []
    keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            shown.append("*")
        keyword_only |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        shown.append(_parameter(parameter))
    result = _annotation(signature.return_annotation, " -> ")
    line = f"({', '.join(shown)}){result}"
    return line if len(line) <= _LINE else "(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    mark = _MARKS.get(parameter.kind, "")
    text = f"{mark}{parameter.name}{_annotation(parameter.annotation, ': ')}"
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default) if isinstance(parameter.default, _SIMPLE) else "..."
    return f"{text} = {default}"


def _annotation(annotation: Any, mark: str) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return mark + _MODULE.sub("", _UNPACKED.sub(r"Unpack[\1]", text))
