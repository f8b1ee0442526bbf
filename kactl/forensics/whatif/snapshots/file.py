"""A snapshot in a file: known by its content, read without Spark where it fits."""

import gzip
import io
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa

from kactl.forensics.storage import Location
from kactl.forensics.tables import parquet_reader
from kactl.forensics.whatif.partitions import REQUIRED, SCHEMA, BadSnapshot

from . import describe, documents
from .builder import twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARQUET: Final = b"PAR1"
# A million partitions as text are some 100 MB; what is far beyond is Parquet's.
_TEXT_MAX: Final = 2 * 1024**3
# More partitions than this are read by Spark.
PARTITIONS_HERE: Final = 5_000_000
_FORMS: Final = (
    "the lines of `kafka-topics.sh --describe`, the JSON of `kactl get partitions -o json`, or Parquet with columns "
    + ", ".join(REQUIRED)
)


def rows_of_parquet(name: str) -> int | None:
    """How many partitions a Parquet file or folder has; None if it is something else.

    Raises:
        BadSnapshot: it is not there, or broken.
    """
    place = Location(name)
    try:
        paths = _paths(place)
        if not paths:
            raise BadSnapshot(name, f"the folder is empty: name a file or folder with {_FORMS}")
        with Location(paths[0]).open() as first:
            if first.read(len(_PARQUET)) != _PARQUET:
                return None
        return int(_dataset(paths).count_rows())
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(name, error) from None


def read(name: str) -> tuple[pa.Table, tuple[str, ...]]:
    """The partitions of a file, with the columns of `partitions.SCHEMA`, and what to know of it in sentences.

    Raises:
        BadSnapshot: it is not there, is nothing of the kind, or holds no partition.
    """
    if rows_of_parquet(name) is not None:
        return read_parquet(name), ()
    try:
        with Location(name).open() as file:
            if not Location.is_packed(file):
                return read_stream(file, name)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return read_stream(unpacked, name)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(name, error) from None


def read_stream(file: BinaryIO | io.BufferedIOBase, name: str) -> tuple[pa.Table, tuple[str, ...]]:
    """The same of what is not Parquet.

    Raises:
        BadSnapshot: as above.
    """
    content = file.read(_TEXT_MAX + 1)
    if len(content) > _TEXT_MAX:
        raise BadSnapshot(name, f"it has more than {_TEXT_MAX // 1024**3} GB: give it as Parquet")
    begin = content[:4096].lstrip()
    if begin.startswith(b"{") or (begin.startswith(b"[") and begin[1:].lstrip()[:1] in (b"{", b"]")):
        return documents.read(content, name)
    # Shells of Windows write what a tool prints in UTF-16.
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = content.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    if not any(map(describe.is_described, text.splitlines())):
        raise BadSnapshot(name, f"it is no snapshot: that would be {_FORMS}")
    return describe.read(text.splitlines(), name), ()


def read_parquet(name: str) -> pa.Table:
    """A Parquet file or folder. Columns that are not required may be missing, others may be there.

    Raises:
        BadSnapshot: a column is missing or of another type, a value is missing, or there is no partition.
    """
    try:
        found = _dataset(_paths(Location(name)))
        check_columns(name, found.schema.names)
        table = found.to_table(columns=[each for each in SCHEMA.names if each in found.schema.names])
        filled = {
            field.name: table[field.name].cast(field.type) if field.name in table.column_names else _nulls(table, field)
            for field in SCHEMA
        }
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(name, error) from None
    if not len(table):
        raise BadSnapshot(name, "there is no partition in it")
    for column in ("topic", "partition"):
        if table[column].null_count:
            raise BadSnapshot(name, f"{table[column].null_count} rows have no {column}")
    again = twice(table, range(len(table)))
    if again is not None:
        raise BadSnapshot(name, f"{again[0]}-{again[1]} stands in it more than once: give one snapshot only")
    return pa.table(filled)


def frame(spark: "SparkSession", name: str) -> "DataFrame":
    """The same for Spark, for what is too large to be read here.

    Raises:
        BadSnapshot: as above.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_type

    found = parquet_reader(spark).parquet(Location(name).uri)
    check_columns(name, found.columns)
    there = {field.name: f.col(field.name) if field.name in found.columns else f.lit(None) for field in SCHEMA}
    partitions = found.select(*(there[each.name].cast(from_arrow_type(each.type)).alias(each.name) for each in SCHEMA))
    again = partitions.groupBy("topic", "partition").count().where("count > 1 or topic is null or partition is null")
    for row in again.limit(1).collect():
        raise BadSnapshot(name, f"{row['topic']}-{row['partition']} stands in it more than once, or is null")
    return partitions


def check_columns(name: str, there: list[str]) -> None:
    """
    Raises:
        BadSnapshot: a required column is missing.
    """
    missing = [each for each in REQUIRED if each not in there]
    if missing:
        raise BadSnapshot(name, f"it has no column {', '.join(missing)}; it needs {', '.join(REQUIRED)}")


def _paths(place: Location) -> list[str]:
    """The file itself, or what a folder holds: of Parquet there only the parts, as marks of those who wrote them lie
    beside them."""
    found = sorted(each.name for each in place.files())
    return [each for each in found if each.endswith(".parquet")] or found


def _dataset(paths: list[str]) -> Any:
    """Of files that lie in one place, wherever that is."""
    import pyarrow.dataset as ds
    from pyarrow import fs

    if not Location(paths[0]).is_remote:
        return ds.dataset(paths, format="parquet")
    files, first = fs.FileSystem.from_uri(paths[0])
    head = paths[0].removesuffix(first)
    return ds.dataset([each.removeprefix(head) for each in paths], format="parquet", filesystem=files)


def _nulls(table: pa.Table, field: pa.Field) -> pa.Array:
    return pa.nulls(len(table), field.type)


def _unreadable(name: str, error: Exception) -> BadSnapshot:
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return BadSnapshot(name, f"it cannot be read ({reason}); a snapshot is {_FORMS}")
