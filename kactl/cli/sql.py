"""`kactl forensics sql`: queries of the tables in Spark's SQL."""

import csv
import itertools
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kactl.runtime.escaping import harmless_lines

from . import output
from .common_options import FORMS, Settings, with_options
from .exits import Exit, Failure
from .forensic_inputs import errors_translated, folder_option, job_results, manifest_of, spark_for
from .forensics import spark_options
from .output import NONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kactl.forensics.columns import Column

_LIMIT: Final = 1000
# Spark classifies these as commands too, but they are read-only.
_READ_ONLY: Final = ("show", "describe", "desc", "explain")
_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical"
_CHANGES: Final = ("Command", "ParsedStatement", "InsertIntoDir")
_INGESTED: Final = ("events", "files", "levels")
_TIMED: Final = "timed"


@click.command(short_help="Query the tables in SQL.")
@click.argument("query", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=_LIMIT,
    show_default=True,
    help="Maximum number of rows; 0: all.",
)
@folder_option
@spark_options
@with_options((*FORMS, "csv"), server=False)
def sql(settings: Settings, *, query: str | None, limit: int, folder: str, master: str, memory: str) -> None:
    """Query the ingested tables and the results of the jobs in Spark's SQL.

    Without a query, list the tables and their columns. Examples:

    \b
      kactl forensics sql "SELECT topic, count(*) FROM outages WHERE NOT planned GROUP BY topic"
      kactl forensics sql "SELECT at, speaker, type FROM timed WHERE topic = 'orders' ORDER BY at" -o csv --limit 0
    """
    form = settings.form()
    if query is None:
        _show_tables(form)
        return
    with errors_translated():
        manifest = manifest_of(folder)
        with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
            _create_views(spark, folder, query, on_progress)
            on_progress("query", 0, 0)
            frame = _frame(spark, query)
            # One more row than is shown, to detect that there are more.
            rows = _rows(frame if limit == 0 else frame.limit(limit + 1), all_=limit == 0)
            first = list(itertools.islice(rows, 1))
            on_progress("", 0, 0)  # clear the line before the output starts
            rows = itertools.chain(first, rows)
            shown = rows if limit == 0 else itertools.islice(rows, limit)
            _show(frame.columns, shown, form)
            if limit and next(rows, None) is not None:
                settings.note(f"There are more than {limit:,} rows: --limit N for more, --limit 0 for all.")


# -- tables -----------------------------------------------------------------------------------------------------


def tables() -> "dict[str, tuple[str, tuple[Column, ...]]]":
    """Returns each table that can be queried, with its description and its columns."""
    from kactl.forensics.events import COLUMNS
    from kactl.forensics.jobs import timed
    from kactl.forensics.jobs.catalog import JOBS
    from kactl.forensics.tables import FILE_COLUMNS, LEVEL_COLUMNS

    by_name: dict[str, tuple[str, tuple[Column, ...]]] = {
        "events": ("every line that was parsed as an event", COLUMNS),
        "files": ("kind, time range and coverage of each file", FILE_COLUMNS),
        "levels": ("log levels of each file over time", LEVEL_COLUMNS),
    }
    by_name |= {job.name: (job.description, job.columns) for job in JOBS}
    return by_name | {_TIMED: ("the events on one clock: all their columns, and these", timed.COLUMNS)}


def _show_tables(form: str) -> None:
    rows = [
        {"table": name, "column": column.name, "type": str(column.type), "says": column.description}
        for name, (_, columns) in tables().items()
        for column in columns
    ]
    if form in output.DATA:
        output.print_data(form, rows, rows)
    elif form == "csv":
        _print_csv(("table", "column", "type", "says"), (tuple(row.values()) for row in rows))
    else:
        for name, (description, columns) in tables().items():
            output.print_lines([f"{click.style(name, bold=True)}: {description}"])
            lines = output.table(
                ("  COLUMN", "TYPE", "SAYS"), ((f"  {c.name}", str(c.type), c.description) for c in columns)
            )
            output.print_lines([*lines[1:], ""])


def _create_views(spark: "SparkSession", folder: str, query: str, on_progress: Any) -> None:
    """Register all tables by name. The jobs run only if the query names one of their tables."""
    from kactl.forensics.tables import open_tables

    names = set(re.findall(r"\w+", query.lower()))
    if names & (set(tables()) - set(_INGESTED)):
        views = dict(job_results(spark, folder, on_progress))
    else:
        opened = open_tables(spark, folder)
        views = {name: getattr(opened, name) for name in _INGESTED}
    for name, view in views.items():
        view.createOrReplaceTempView(name)


# -- query ---------------------------------------------------------------------------------------------------------


def _frame(spark: "SparkSession", query: str) -> "DataFrame":
    """Returns the result of a query, which is not computed yet.

    Raises:
        Failure: USAGE, with the error and its position.
    """
    from pyspark.errors import AnalysisException, ParseException

    # It would also log the error with its stack trace.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    try:
        if _changes(spark, query):
            raise Failure("sql: the tables are read-only: use SELECT, WITH, SHOW, DESCRIBE or EXPLAIN", Exit.USAGE)
        return spark.sql(query)
    except (ParseException, AnalysisException) as error:
        raise Failure(f"sql: {reason(str(error), query)}", Exit.USAGE) from None


def _changes(spark: "SparkSession", query: str) -> bool:
    """Returns whether a statement changes data. Spark would execute it at once, and could replace tables."""
    session: Any = spark
    words = re.sub(r"(?s)/\*.*?\*/|--[^\n]*", " ", query).split(maxsplit=1)
    if words and words[0].lower() in _READ_ONLY:
        return False
    kinds = [session._jvm.java.lang.Class.forName(f"{_PLANS}.{name}") for name in _CHANGES]
    plans = [session._jsparkSession.sessionState().sqlParser().parsePlan(query)]
    for plan in plans:
        if any(kind.isInstance(plan) for kind in kinds):
            return True
        children = plan.children()
        plans += [children.apply(index) for index in range(children.size())]
    return False


def reason(message: str, query: str) -> str:
    """Returns the line of Spark's message that describes the error, and its position in the query."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = re.sub(r"\s*SQLSTATE: \w+\s*", " ", lines[0] if lines else "the query is invalid").strip()
    name = re.match(r"\[(?P<name>[A-Z_.]+)\]\s*", first)
    first = first[name.end() :] if name is not None else first
    by_name = f" ({name['name']})" if name is not None else ""
    place = re.search(r"\(?line (?P<line>\d+),? pos(?:ition)? (?P<column>\d+)\)?", message)
    if place is None:
        return first.rstrip(" .;") + by_name
    index = int(place["line"]) - 1
    lines = query.splitlines()
    near = lines[index][int(place["column"]) :][:30] if index < len(lines) else ""
    first = first.replace(place[0], "").rstrip(" .;,")
    where = f"line {place['line']}, column {int(place['column']) + 1}" + (f", at {near!r}" if near else "")
    return f"{first}: {where}{by_name}"


def _rows(frame: "DataFrame", *, all_: bool) -> Iterator[tuple[Any, ...]]:
    """Yield row by row, so that a large result is never in memory completely."""
    from pyspark.sql import functions as f

    if not frame.columns:
        return
    # Numbered names, because names may repeat. As JSON, because Python's times would be in the zone of this machine.
    numbered = frame.toDF(*(f"c{index}" for index in range(len(frame.columns))))
    rows = numbered.select(f.to_json(f.struct("*"), _JSON).alias("row"))
    for row in rows.toLocalIterator() if all_ else rows.collect():
        yield tuple(json.loads(row["row"]).values())


_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


# -- output --------------------------------------------------------------------------------------------------


def _show(names: list[str], rows: Iterable[tuple[Any, ...]], form: str) -> None:
    keys = distinct(names)
    if form == "jsonl":
        output.print_jsonl(dict(zip(keys, row, strict=True)) for row in rows)
    elif form in output.DATA:
        output.print_data(form, [dict(zip(keys, row, strict=True)) for row in rows])
    elif form == "csv":
        _print_csv(names, rows)
    else:
        output.print_lines(output.table(names, (tuple(map(_cell, row)) for row in rows)))


def distinct(names: Iterable[str]) -> list[str]:
    """Returns unique names: the second column `topic` becomes `topic_2`, because keys of an object must be unique."""
    keys: dict[str, None] = {}
    for name in names:
        number = itertools.count(2)
        key = name
        while key in keys:
            key = f"{name}_{next(number)}"
        keys[key] = None
    return list(keys)


def _print_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(harmless_lines, names))
    for row in rows:
        writer.writerow("" if value is None else harmless_lines(_text(value)) for value in row)


def _cell(value: Any) -> str:
    if value is None:
        return NONE
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
