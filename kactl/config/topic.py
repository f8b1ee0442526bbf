"""Validation of topic configuration overrides.

A broker that reads an invalid override from the store fails for every partition of the topic, and for all partitions of
the same request. Invalid values must therefore not be stored. Unknown names are ignored, as brokers do: a service that
embeds the controller may use its own.

Source: LogConfig, TopicConfig.
"""

from collections.abc import Callable, Mapping
from typing import Final

UNCLEAN_ELECTIONS: Final = "unclean.leader.election.enable"
# Whether a new leader waits until the lease of the earlier one has ended. kactl's own: Kafka's brokers have no leases.
LEASE: Final = "leadership.lease"

# Returns a description of the valid values; None if the value is valid.
_Check = Callable[[str], str | None]


def wrong(config: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns the first override that brokers could not use, with the reason; None if all are valid."""
    for name, text in config.items():
        check = _KNOWN.get(name)
        valid = None if check is None else check(text.strip())
        if valid is not None:
            return name, f"{text!r} is not valid; it must be {valid}"
    return None


def is_leased(config: Mapping[str, str]) -> bool:
    """Returns whether new leaders of a topic with these overrides wait for earlier ones: unless it is forbidden."""
    return config.get(LEASE, "").strip().lower() != "false"


def _whole(least: int, bits: int = 64) -> _Check:
    most = 2 ** (bits - 1) - 1

    def check(text: str) -> str | None:
        # The length is limited, so that a text of a million digits is not parsed.
        is_number = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= len(str(most)) + 1
        return None if is_number and least <= int(text) <= most else f"a whole number from {least} to {most}"

    return check


def _ratio(text: str) -> str | None:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    return None if 0 <= value <= 1 else "a number from 0 to 1"


def _one_of(*values: str) -> _Check:
    return lambda text: None if text in values else f"one of {', '.join(values)}"


def _some_of(*values: str) -> _Check:
    def check(text: str) -> str | None:
        return None if {item.strip() for item in text.split(",")} <= {*values} else f"some of {', '.join(values)}"

    return check


def _boolean(text: str) -> str | None:
    return None if text.lower() in ("true", "false") else "true or false"


_SIZE: Final = _whole(0, bits=32)
_TIME: Final = _whole(0)

_KNOWN: Final[Mapping[str, _Check]] = {
    LEASE: _boolean,
    UNCLEAN_ELECTIONS: _boolean,
    "cleanup.policy": _some_of("compact", "delete"),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "delete.retention.ms": _TIME,
    "file.delete.delay.ms": _TIME,
    "flush.messages": _TIME,
    "flush.ms": _TIME,
    "index.interval.bytes": _SIZE,
    "local.retention.bytes": _whole(-2),
    "local.retention.ms": _whole(-2),
    "max.compaction.lag.ms": _whole(1),
    "max.message.bytes": _SIZE,
    "message.downconversion.enable": _boolean,
    "message.timestamp.after.max.ms": _TIME,
    "message.timestamp.before.max.ms": _TIME,
    "message.timestamp.difference.max.ms": _TIME,
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _TIME,
    "min.insync.replicas": _whole(1, bits=32),
    "preallocate": _boolean,
    "remote.storage.enable": _boolean,
    "retention.bytes": _whole(-(2**63)),
    "retention.ms": _whole(-1),
    "segment.bytes": _whole(14, bits=32),
    "segment.index.bytes": _SIZE,
    "segment.jitter.ms": _TIME,
    "segment.ms": _whole(1),
}
