"""Values of the configuration: durations, addresses and the base class of sections."""

import ipaddress
import re
from typing import Final, NamedTuple

import msgspec

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
# Labels have 1 to 63 characters: the resolver raises UnicodeError for others.
_LABEL: Final = r"[^:\[\]\s/.]{1,63}"
_NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*\.?"
_HOST: Final = rf"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<name>{_NAME}))"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LISTEN: Final = re.compile(_HOST + r":(?P<port>[0-9]{1,5})")
HOST: Final = re.compile(_HOST + r"(?::(?P<port>[0-9]{1,5}))?")
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
ENDPOINT: Final = re.compile(r"(?P<listener>[A-Za-z0-9_-]+)://" + LISTEN.pattern)
API_URL: Final = re.compile(r"https?://" + _HOST + r"(?::(?P<port>[0-9]{1,5}))?")
OTLP_URL: Final = re.compile(r"https?://" + _HOST + r"(?::(?P<port>[0-9]{1,5}))?(?:/[^\s?#]*)?")
ETCD_ENDPOINT: Final = re.compile(r"https?://" + LISTEN.pattern + "/?")


class Duration(int):
    """Milliseconds; written with a unit, as in `18s` or `500ms`."""

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """Returns the duration of a text with a unit.

        Raises:
            ValueError: the text is not a duration, or is zero, with which no setting makes sense.
        """
        matched = _DURATION.fullmatch(text) if isinstance(text, str) else None
        if matched is not None and not int(matched[1]):
            raise ValueError(f'{text!r} is no time at all, which would end at once: write at least "1ms"')
        if matched is None:
            raise ValueError(f'{text!r} is not a duration: write it in quotes, with a unit, as in "18s" or "500ms"')
        return cls(int(matched[1]) * _UNITS_MS[matched[2]])

    @property
    def text(self) -> str:
        """The duration in the largest unit of which it is a whole number, as in `5m` or `500ms`."""
        unit = next(unit for unit in reversed(_UNITS_MS) if self % _UNITS_MS[unit] == 0)
        return f"{self // _UNITS_MS[unit]}{unit}"


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A section of the file. Keys are written with dashes."""


class Listen(NamedTuple):
    """Address that a server listens on. Port 0 selects a free one."""

    host: str
    port: int
