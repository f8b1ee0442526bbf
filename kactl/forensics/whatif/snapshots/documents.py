"""What kactl prints of partitions: `kactl get partitions -o json` or `-o jsonl`, and the answer of `/v1/partitions`.

Only what is needed is looked at, so that other fields may come and go.
"""

from typing import Final

import msgspec
import pyarrow as pa

from kactl.forensics.whatif.partitions import BadSnapshot

from .builder import Builder

# What `kactl get partitions` shows if it is not asked for more.
_USUAL_LIMIT: Final = 500
_PART: Final = "so it is not all of the cluster: what these brokers hold elsewhere is not looked at"


class Partition(msgspec.Struct, frozen=True):
    """One partition."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None = None
    min_insync_replicas: int | None = None


class Page(msgspec.Struct, frozen=True):
    """An answer of the API."""

    items: list[Partition]
    matched: int | None = None
    next_cursor: str | None = None


def read(content: bytes, source: str) -> tuple[pa.Table, tuple[str, ...]]:
    """The partitions of a document, and what to know of it.

    Raises:
        BadSnapshot: it is another document, or there is no partition in it.
    """
    try:
        items, notes = _items(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSnapshot(
            source, f"{error}; write it with `kactl get partitions --limit 1000000 -o json`, or give --describe's lines"
        ) from None
    found = Builder(source, "partition")
    for number, each in enumerate(items, 1):
        found.add(
            number,
            each.topic,
            each.partition,
            leader=each.leader,
            replicas=each.replicas,
            isr=each.isr,
            elr=each.elr,
            min_isr=each.min_insync_replicas,
        )
    if not len(found):
        raise BadSnapshot(source, "there is no partition in it: ask for all of them, or look whether there are any")
    return found.table(), notes


def _items(content: bytes) -> tuple[list[Partition], tuple[str, ...]]:
    text = content.strip()
    if text.startswith(b"["):
        items = msgspec.json.decode(text, type=list[Partition])
        if len(items) == _USUAL_LIMIT:
            return items, (
                f"The snapshot has {_USUAL_LIMIT} partitions, as many as are shown unless --limit asks for more.",
            )
        return items, ()
    first, _, rest = text.partition(b"\n")
    if first.rstrip().endswith(b"}") and rest:
        return msgspec.json.Decoder(Partition).decode_lines(text), ()
    if b'"items"' not in text:
        return [msgspec.json.decode(text, type=Partition)], ()
    page = msgspec.json.decode(text, type=Page)
    if page.next_cursor is None:
        return page.items, ()
    return page.items, (f"The snapshot is one page of {page.matched or 'more'} partitions, {_PART}.",)
