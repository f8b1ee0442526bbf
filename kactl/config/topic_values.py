"""Values of topic settings, as Java reads them: the texts that a broker takes for a number, a boolean, a list.

Each check returns a description of the valid values; None if the value is valid.

Source: ConfigDef.parseType, LogConfig, ThrottledReplicaListValidator, MetadataVersion.fromVersionString.
"""

import contextlib
import re
from collections.abc import Callable
from typing import Final

from .protocol_level import LAST_STEP, LATEST, ProtocolLevel

Check = Callable[[str], str | None]

# What Java's trim removes.
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_SEPARATOR: Final = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")
# Java reads decimal digits of any script, but only those of the basic plane.
_WHOLE: Final = re.compile(r"[+-]?0*([^\W\U00010000-\U0010FFFF]+)|[+-]?0+")
_DIGITS_MAX: Final = 19
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
_HEXADECIMAL: Final = re.compile(r"[+-]?0x([0-9a-f]+\.?|[0-9a-f]*\.[0-9a-f]+)p[+-]?[0-9]+", re.ASCII | re.IGNORECASE)
_THROTTLED: Final = re.compile(r"([0-9]+:[0-9]+)?", re.ASCII)
_NO_STEP: Final = -1
# Releases before the oldest supported level -> last step; those of 0.x.y have no plain name without y.
_OLD_FORMATS: Final = {
    "0.8.0": _NO_STEP, "0.8.1": _NO_STEP, "0.8.2": _NO_STEP, "0.9.0": _NO_STEP,
    "0.10.0": 1, "0.10.1": 2, "0.10.2": 0, "0.11.0": 2,
    "1.0": 0, "1.1": 0, "2.0": 1, "2.1": 2, "2.2": 1, "2.3": 1, "2.4": 1, "2.5": 0,
}  # fmt: skip
# Steps of the next release that brokers of 3.9 know, without a plain name.
_NEXT_FORMATS: Final = ("4.0-IV0", "4.0-IV1")


def trimmed(text: str) -> str:
    """Returns a value as Java trims it."""
    return text.strip(_TRIMMED)


def items(text: str) -> list[str]:
    """Returns the items of a list, which may be empty texts; none for an empty list."""
    text = trimmed(text)
    return _SEPARATOR.split(text) if text else []


def whole(text: str) -> int | None:
    """Returns a whole number of up to 19 digits; None for any other text."""
    text = trimmed(text)
    matched = _WHOLE.fullmatch(text)
    if matched is None:
        return None
    digits = matched[1] or "0"
    # The length is limited, so that a text of a million digits is not parsed.
    if len(digits) > _DIGITS_MAX or not digits.isdecimal():
        return None
    return -int(digits) if text.startswith("-") else int(digits)


def is_true(text: str) -> bool:
    """Returns whether a boolean is true."""
    return trimmed(text).lower() == "true"


def number(least: int, most: int | None = None, *, bits: int = 64, also: int | None = None) -> Check:
    """Returns the check of a whole number.

    Args:
        most: the greatest of these bits if None.
        also: one more valid number.
    """
    top = 2 ** (bits - 1) - 1 if most is None else most
    valid = f"a whole number from {least} to {top}" + ("" if also is None else f", or {also}")

    def check(text: str) -> str | None:
        value = whole(text)
        return None if value is not None and (least <= value <= top or value == also) else valid

    return check


def ratio(text: str) -> str | None:
    """Check a number from 0 to 1, in decimal or hexadecimal. Like Kafka, this accepts NaN."""
    text = trimmed(text)
    if text.lstrip("+-") == "NaN" and len(text) <= len("+NaN"):
        return None
    bare = text[:-1] if text[-1:] in ("f", "F", "d", "D") else text
    value = -1.0
    if _REAL.fullmatch(bare):
        value = float(bare)
    elif _HEXADECIMAL.fullmatch(bare):
        with contextlib.suppress(OverflowError):  # in Java it is infinite
            value = float.fromhex(bare)
    return None if 0 <= value <= 1 else "a number from 0 to 1"


def one_of(*values: str) -> Check:
    return lambda text: None if trimmed(text) in values else f"one of {', '.join(values)}"


def some_of(*values: str) -> Check:
    return lambda text: None if {*items(text)} <= {*values} else f"some of {', '.join(values)}"


def boolean(text: str) -> str | None:
    return None if trimmed(text).lower() in ("true", "false") else "true or false"


def throttled(text: str) -> str | None:
    """Check a list of replicas that are throttled."""
    named = items(text)
    if "".join(named) == "*" or all(map(_THROTTLED.fullmatch, named)):
        return None
    return "* or PARTITION:BROKER,PARTITION:BROKER,..."


def message_format(level: ProtocolLevel) -> Check:
    """Returns the check of the version of a message format, which brokers of this level have to know."""
    own = (level.major, level.minor)
    steps = _OLD_FORMATS | {f"{release[0]}.{release[1]}": last for release, last in LAST_STEP.items() if release <= own}
    known = {*steps, *(f"{release}-IV{step}" for release, last in steps.items() for step in range(last + 1))}
    if level >= LATEST:
        known.update(_NEXT_FORMATS)

    def check(text: str) -> str | None:
        parts = trimmed(text).split(".")
        version = ".".join(parts[: 3 if parts[0] == "0" else 2])
        return None if version in known else f"a version from 0.8.0 to {level.major}.{level.minor}, such as 2.8-IV1"

    return check
