"""The base of all classes that give the fields of a kind of event."""

import msgspec


class Fields(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Fields of an event. They are plain values."""
