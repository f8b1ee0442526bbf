"""Errors in MessagePack: an error arrives as the class that was raised, with its message and its plain attributes.

A class that the receiver does not know arrives as the nearest base class that it knows.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from kactl.model import errors
from kactl.model.errors import KactlError

_Text = Annotated[str, msgspec.Meta(max_length=100_000)]
_Plain = bool | int | float | _Text | None
_LISTED = 100


class ErrorHead(msgspec.Struct, frozen=True, array_like=True, tag="Error"):
    """Attributes:
    classes: names of the class and of its bases, the class itself first.
    attributes: those that are numbers, text or None; others as text.
    """

    classes: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=_LISTED)]
    text: _Text
    attributes: Annotated[dict[_Text, _Plain], msgspec.Meta(max_length=_LISTED)] = {}

    def build(self) -> KactlError:
        known = [_CLASSES[name] for name in self.classes if name in _CLASSES]
        made = (known[0] if known else KactlError).__new__(known[0] if known else KactlError)
        made.args = (self.text,)
        for name, value in self.attributes.items():
            if name.isidentifier() and not name.startswith("_") and not hasattr(type(made), name):
                setattr(made, name, value)
        return made


def _subclasses(base: type[KactlError]) -> Iterator[type[KactlError]]:
    yield base
    for derived in base.__subclasses__():
        yield from _subclasses(derived)


# Only those of kactl itself: a subclass that an application defines is not constructed from bytes.
_CLASSES: Final = {found.__name__: found for found in _subclasses(KactlError) if found.__module__ == errors.__name__}


def error_head(error: KactlError) -> ErrorHead:
    classes = tuple(found.__name__ for found in type(error).__mro__ if issubclass(found, KactlError))
    return ErrorHead(classes, str(error), {name: _plain(value) for name, value in vars(error).items()})


def _plain(value: Any) -> bool | int | float | str | None:
    # An enum of int or str is written as that.
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
