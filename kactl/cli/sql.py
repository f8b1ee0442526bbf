"""`kactl forensics sql`: whatever else one wants to know."""

import csv
import itertools
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from . import output
from .exits import Exit, Failure
from .forensic_answers import answers, errors_said, folder_option, manifest_of, spark_for
from .forensics import spark_options
from .output import NONE
from .settings import FORMS, Settings, with_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kactl.forensics.columns import Column

_LIMIT: Final = 1000
# They are commands to Spark as well, and change nothing.
_TELLING: Final = ("show", "describe", "desc", "explain")
_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical"
_CHANGES: Final = ("Command", "ParsedStatement", "InsertIntoDir")
_INGESTED: Final = ("events", "files", "levels")
_TIMED: Final = "timed"


@click.command(short_help="Ask the tables anything, in SQL.")
@click.argument("query", required=False)
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), default=_LIMIT, show_default=True, help="At most so many rows; 0: all."
)
@folder_option
@spark_options
@with_options((*FORMS, "csv"), server=False)
def sql(settings: Settings, *, query: str | None, limit: int, folder: str, master: str, memory: str) -> None:
    """Ask the tables of an ingest, and what the jobs made of them, in Spark's SQL.

    Without a query it lists the tables and their columns. For example:

    \b
      kactl forensics sql "SELECT topic, count(*) FROM outages WHERE NOT planned GROUP BY topic"
      kactl forensics sql "SELECT at, speaker, type FROM timed WHERE topic = 'orders' ORDER BY at" -o csv --limit 0
    """
    form = settings.form()
    if query is None:
        _show_tables(form)
        return
    with errors_said():
        manifest = manifest_of(folder)
        with spark_for(settings, master, memory, events=manifest.events) as (spark, on_progress):
            _views(spark, folder, query, on_progress)
            on_progress("query", 0, 0)
            found = _asked(spark, query)
            # One more than is shown tells whether there are more.
            rows = _rows(found if limit == 0 else found.limit(limit + 1), all_=limit == 0)
            first = list(itertools.islice(rows, 1))
            on_progress("", 0, 0)  # the answer begins on a line of its own
            rows = itertools.chain(first, rows)
            shown = rows if limit == 0 else itertools.islice(rows, limit)
            _show(found.columns, shown, form)
            if limit and next(rows, None) is not None:
                settings.note(f"There are more than {limit:,} rows: --limit N for more, --limit 0 for all.")


# -- what there is -----------------------------------------------------------------------------------------------------


def tables() -> "dict[str, tuple[str, tuple[Column, ...]]]":
    """Returns each table that can be queried, with its description and its columns."""
    from kactl.forensics.events import COLUMNS
    from kactl.forensics.files import FILE_COLUMNS, LEVEL_COLUMNS
    from kactl.forensics.jobs import timed
    from kactl.forensics.jobs.catalog import JOBS

    made: dict[str, tuple[str, tuple[Column, ...]]] = {
        "events": ("every line that says something", COLUMNS),
        "files": ("what each file is and can tell", FILE_COLUMNS),
        "levels": ("which levels were logged when", LEVEL_COLUMNS),
    }
    made |= {job.name: (job.description, job.columns) for job in JOBS}
    return made | {_TIMED: ("the events, on one clock; all of their columns, and these", timed.COLUMNS)}


def _show_tables(form: str) -> None:
    listed = [
        {"table": name, "column": each.name, "type": str(each.type), "says": each.description}
        for name, (_, columns) in tables().items()
        for each in columns
    ]
    if form == "json":
        output.print_json(listed)
    elif form == "jsonl":
        output.print_jsonl(listed)
    elif form == "csv":
        _print_csv(("table", "column", "type", "says"), (tuple(each.values()) for each in listed))
    else:
        for name, (says, columns) in tables().items():
            output.print_lines([f"{click.style(name, bold=True)}: {says}"])
            lines = output.table(
                ("  COLUMN", "TYPE", "SAYS"), ((f"  {c.name}", str(c.type), c.description) for c in columns)
            )
            output.print_lines([*lines[1:], ""])


def _views(spark: "SparkSession", folder: str, query: str, on_progress: Any) -> None:
    """All tables under their names; the jobs are run only if the query names one of theirs."""
    from kactl.forensics.tables import open_tables

    names = set(re.findall(r"\w+", query.lower()))
    if names & (set(tables()) - set(_INGESTED)):
        views = dict(answers(spark, folder, on_progress))
    else:
        opened = open_tables(spark, folder)
        views = {name: getattr(opened, name) for name in _INGESTED}
    for name, view in views.items():
        view.createOrReplaceTempView(name)


# -- the query ---------------------------------------------------------------------------------------------------------


def _asked(spark: "SparkSession", query: str) -> "DataFrame":
    """
    Raises:
        Failure: USAGE, and where and what is wrong, in a sentence.
    """
    from pyspark.errors import AnalysisException, ParseException

    # It would print the whole of it as well, with its stack, before we say what one needs of it.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    try:
        if _changes(spark, query):
            raise Failure("sql: the tables are only read: ask with SELECT, WITH, SHOW, DESCRIBE or EXPLAIN", Exit.USAGE)
        return spark.sql(query)
    except (ParseException, AnalysisException) as error:
        raise Failure(f"sql: {reason(str(error), query)}", Exit.USAGE) from None


def _changes(spark: "SparkSession", query: str) -> bool:
    """Whether it is more than a question. Spark would do it at once, and the tables are files that it may replace."""
    session: Any = spark
    told = re.sub(r"(?s)/\*.*?\*/|--[^\n]*", " ", query).split(maxsplit=1)
    if told and told[0].lower() in _TELLING:
        return False
    kinds = [session._jvm.java.lang.Class.forName(f"{_PLANS}.{name}") for name in _CHANGES]
    plans = [session._jsparkSession.sessionState().sqlParser().parsePlan(query)]
    for plan in plans:
        if any(kind.isInstance(plan) for kind in kinds):
            return True
        below = plan.children()
        plans += [below.apply(at) for at in range(below.size())]
    return False


def reason(said: str, query: str) -> str:
    """Of Spark's many lines the one that says what is wrong, and where in the query it is."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = re.sub(r"\s*SQLSTATE: \w+\s*", " ", lines[0] if lines else "it cannot be read").strip()
    name = re.match(r"\[(?P<name>[A-Z_.]+)\]\s*", first)
    first = first[name.end() :] if name is not None else first
    by_name = f" ({name['name']})" if name is not None else ""
    place = re.search(r"\(?line (?P<line>\d+),? pos(?:ition)? (?P<column>\d+)\)?", said)
    if place is None:
        return first.rstrip(" .;") + by_name
    at = int(place["line"]) - 1
    near = query.splitlines()[at][int(place["column"]) :][:30] if at < len(query.splitlines()) else ""
    first = first.replace(place[0], "").rstrip(" .;,")
    where = f"line {place['line']}, column {int(place['column']) + 1}" + (f", at {near!r}" if near else "")
    return f"{first}: {where}{by_name}"


def _rows(found: "DataFrame", *, all_: bool) -> Iterator[tuple[Any, ...]]:
    """Row by row; all of a large answer never stand here at once."""
    from pyspark.sql import functions as f

    if not found.columns:
        return
    # By number: a query may name two columns alike. As text: as Python's own, times would be of this machine's zone.
    numbered = found.toDF(*(f"c{at}" for at in range(len(found.columns))))
    rows = numbered.select(f.to_json(f.struct("*"), _JSON).alias("row"))
    for row in rows.toLocalIterator() if all_ else rows.collect():
        yield tuple(json.loads(row["row"]).values())


_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


# -- what comes of it --------------------------------------------------------------------------------------------------


def _show(names: list[str], rows: Iterable[tuple[Any, ...]], form: str) -> None:
    keys = distinct(names)
    if form == "jsonl":
        output.print_jsonl(dict(zip(keys, row, strict=True)) for row in rows)
    elif form == "json":
        output.print_json([dict(zip(keys, row, strict=True)) for row in rows])
    elif form == "csv":
        _print_csv(names, rows)
    else:
        output.print_lines(output.table(names, (tuple(map(_cell, row)) for row in rows)))


def distinct(names: Iterable[str]) -> list[str]:
    """The same names; of columns that are named alike, the second is `topic_2`: an object would hold one of them."""
    found: dict[str, None] = {}
    for name in names:
        number = itertools.count(2)
        key = name
        while key in found:
            key = f"{name}_{next(number)}"
        found[key] = None
    return list(found)


def _print_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow("" if each is None else _text(each) for each in row)


def _cell(value: Any) -> str:
    if value is None:
        return NONE
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
