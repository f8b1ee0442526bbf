"""Snapshots in files: Parquet, output of Kafka's tool, or JSON of `kactl get partitions` and `/v1/partitions`.

The format is detected from the content.
"""

import gzip
import io
import zlib
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa

from kactl.forensics.storage import Location
from kactl.forensics.text.source import packing
from kactl.forensics.whatif.tables import REQUIRED, SCHEMA, BadSnapshot

from . import kafka_topics
from .builder import Builder, twice

_PARQUET: Final = b"PAR1"
# A million partitions are about 100 MB of text.
_TEXT_MAX: Final = 2 * 1024**3
# 500 bytes a partition: 5 GB. The largest clusters of Kafka have some two million.
PARTITIONS_MAX: Final = 10_000_000
_FORMS: Final = (
    "the output of `kafka-topics.sh --describe`, the JSON of `kactl get partitions -o json`, or Parquet with columns "
    + ", ".join(REQUIRED)
)
# Default limit of `kactl get partitions`.
_DEFAULT_LIMIT: Final = 500


class Partition(msgspec.Struct, frozen=True):
    """A partition in JSON; other fields are ignored."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None = None
    min_insync_replicas: int | None = None


class Page(msgspec.Struct, frozen=True):
    """A response of `/v1/partitions`."""

    items: list[Partition]
    matched: int | None = None
    next_cursor: str | None = None


def is_parquet(name: str) -> bool:
    """Return whether this is a Parquet file or folder.

    Raises:
        BadSnapshot: the file does not exist or cannot be read.
    """
    location = Location(name)
    try:
        paths = _paths(location)
        if not paths:
            raise BadSnapshot(name, f"the folder is empty: name a file or folder with {_FORMS}")
        with Location(paths[0]).open() as first:
            return first.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise _unreadable(name, error) from None


def read(name: str) -> tuple[pa.Table, tuple[str, ...]]:
    """Read a file.

    Returns:
        The partitions, with the columns of `tables.SCHEMA`, and the limits of the snapshot in sentences.

    Raises:
        BadSnapshot: the file does not exist, has another format, or has no partition.
    """
    if is_parquet(name):
        return read_parquet(name), ()
    try:
        with Location(name).open() as file:
            if packing(file) != "gzip":
                return read_stream(file, name)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return read_stream(unpacked, name)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(name, error) from None


def read_stream(file: BinaryIO | io.BufferedIOBase, name: str) -> tuple[pa.Table, tuple[str, ...]]:
    """Read a stream that is not Parquet; results and errors as of `read`."""
    content = file.read(_TEXT_MAX + 1)
    if len(content) > _TEXT_MAX:
        raise BadSnapshot(name, f"it has more than {_TEXT_MAX // 1024**3} GB: use Parquet")
    begin = content[:4096].lstrip()
    if begin.startswith(b"{") or (begin.startswith(b"[") and begin[1:].lstrip()[:1] in (b"{", b"]")):
        return _read_json(content, name)
    # Windows shells write the output of tools in UTF-16.
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = content.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")
    if not any(map(kafka_topics.is_described, text.splitlines())):
        raise BadSnapshot(name, f"it is not a snapshot, which is {_FORMS}")
    return kafka_topics.read(text.splitlines(), name), ()


def _read_json(content: bytes, source: str) -> tuple[pa.Table, tuple[str, ...]]:
    try:
        items, notes = _items(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSnapshot(
            source,
            f"{error}; write it with `kactl get partitions --limit 1000000 -o json`, or use --describe's output",
        ) from None
    partitions = Builder(source, "partition")
    for number, item in enumerate(items, 1):
        partitions.add(
            number,
            item.topic,
            item.partition,
            leader=item.leader,
            replicas=item.replicas,
            isr=item.isr,
            elr=item.elr,
            min_isr=item.min_insync_replicas,
        )
    if not len(partitions):
        raise BadSnapshot(source, "it has no partition: request all partitions, or check whether there are any")
    return partitions.table(), notes


def _items(content: bytes) -> tuple[list[Partition], tuple[str, ...]]:
    text = content.strip()
    if text.startswith(b"["):
        items = msgspec.json.decode(text, type=list[Partition])
        if len(items) == _DEFAULT_LIMIT:
            return items, (
                f"The snapshot has {_DEFAULT_LIMIT} partitions, which is the limit unless --limit is given.",
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
    return page.items, (f"The snapshot is one page of {page.matched or 'more'} partitions; the others are left out.",)


def read_parquet(name: str) -> pa.Table:
    """Read a Parquet file or folder. Optional columns may be missing, and others are ignored.

    Raises:
        BadSnapshot: a column is missing or of another type, a value is missing, or there is no partition.
    """
    try:
        dataset = _dataset(_paths(Location(name)))
        absent = [column for column in REQUIRED if column not in dataset.schema.names]
        if absent:
            raise BadSnapshot(name, f"it has no column {', '.join(absent)}; it needs {', '.join(REQUIRED)}")
        count = dataset.count_rows()
        if count > PARTITIONS_MAX:
            raise BadSnapshot(
                name,
                f"it has {count:,} partitions, more than {PARTITIONS_MAX:,}: it is more than one cluster; split it",
            )
        table = dataset.to_table(columns=[column for column in SCHEMA.names if column in dataset.schema.names])
        missing = {field.name: pa.nulls(len(table), field.type) for field in SCHEMA}
        filled = pa.table(missing | {column: table[column] for column in table.column_names}).cast(SCHEMA)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(name, error) from None
    if not len(table):
        raise BadSnapshot(name, "it has no partition")
    for column in ("topic", "partition"):
        if table[column].null_count:
            raise BadSnapshot(name, f"{table[column].null_count} rows have no {column}")
    repeated = twice(table, range(len(table)))
    if repeated is not None:
        raise BadSnapshot(name, f"it has {repeated[0]}-{repeated[1]} more than once: use one snapshot")
    return filled


def _paths(location: Location) -> list[str]:
    """Return the file itself or the files of a folder, without markers of writers beside Parquet files."""
    names = sorted(file.name for file in location.files())
    return [name for name in names if name.endswith(".parquet")] or names


def _dataset(paths: list[str]) -> Any:
    """Return the dataset of files in one local or remote folder."""
    import pyarrow.dataset as ds
    from pyarrow import fs

    if not Location(paths[0]).is_remote:
        return ds.dataset(paths, format="parquet")
    files, first = fs.FileSystem.from_uri(paths[0])
    head = paths[0].removesuffix(first)
    return ds.dataset([path.removeprefix(head) for path in paths], format="parquet", filesystem=files)


def _unreadable(name: str, error: Exception) -> BadSnapshot:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return BadSnapshot(name, f"it cannot be read ({reason}); a snapshot is {_FORMS}")
