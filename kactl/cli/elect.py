"""`kactl elect`: elections on request, shown before they are held."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import click
import msgspec

from kactl.admin.schema import ElectionAnswer, ElectionRequest, ElectionResult, PartitionName, TopicDetail

from . import output
from .client import confirm, quoted, require_terminal
from .exits import Exit
from .output import BAD, GOOD, PLAIN, Cell
from .partition_files import NamesFile, names_of, parsed, read
from .settings import Settings, options, reason_option

# What became of a partition, in words: as it happened, and as it would happen.
_DONE: Final = {"ok": "moved", "not_needed": "not needed", "failed": "failed"}
_WOULD: Final = {"ok": "would move", "not_needed": "not needed", "failed": "cannot"}
_HEADER: Final = ("PARTITION", "FROM", "TO", "EFFECT")


@click.command(short_help="Elect leaders: the preferred ones, or unclean ones.")
@click.argument("kind", type=click.Choice(["preferred", "unclean"]))
@click.option("--all", "everything", is_flag=True, help="All partitions that need it.")
@click.option("-p", "--partition", "names", multiple=True, metavar="T-P", help="This partition; may be repeated.")
@click.option("--topic", metavar="T", help="All partitions of this topic.")
@click.option("-f", "--file", "file", metavar="FILE", help="Those of a file, as Kafka's tools take it; -: stdin.")
@click.option("--dry-run", is_flag=True, help="Say what would be, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reason_option
@options
def elect(
    settings: Settings,
    *,
    kind: Literal["preferred", "unclean"],
    everything: bool,
    names: tuple[str, ...],
    topic: str | None,
    file: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> None:
    """Elect leaders on request.

    `preferred` gives partitions back to the first replica of their assignment. `unclean` lets a replica lead that is
    not in sync where nobody in sync is alive: records are lost for good.
    """
    if sum((everything, bool(names), topic is not None, file is not None)) != 1:
        raise click.UsageError("say which partitions: exactly one of --all, -p T-P ..., --topic T and -f FILE")
    settings.form()
    if topic is not None:
        chosen = _of_topic(settings, topic)
    elif file is not None:
        chosen = names_of(read(file, NamesFile))
    else:
        chosen = [parsed(name) for name in names]
    asked = ElectionRequest(
        type=kind, partitions=None if everything else chosen, all=everything, dry_run=dry_run, reason=reason
    )
    answer = None if dry_run or yes else _confirm(settings, asked)
    if answer is None:
        answer = settings.api.post("/v1/elections", asked, ElectionAnswer)
    _show(settings, answer)
    if any(result.outcome == "failed" for result in answer.results):
        click.get_current_context().exit(Exit.FAILED)


def _of_topic(settings: Settings, topic: str) -> list[PartitionName]:
    found = settings.api.get(f"/v1/topics/{quoted(topic)}", TopicDetail)
    return [PartitionName(topic=topic, partition=number) for number in range(found.topic.partitions)]


def _confirm(settings: Settings, asked: ElectionRequest) -> ElectionAnswer | None:
    """Show what would be, and ask.

    Returns:
        what would be, if no leader would change, so that there is nothing to ask; None if the answer was yes.

    Raises:
        Failure: PRECONDITION; the answer was no, or there is nobody to be asked.
    """
    require_terminal()
    preview = settings.api.post("/v1/elections", msgspec.structs.replace(asked, dry_run=True), ElectionAnswer)
    if not any(result.outcome == "ok" for result in preview.results):
        return preview
    for line in _table(preview.results, _WOULD):
        click.echo(line, err=True)
    click.echo(_summary(preview.results, _WOULD), err=True)
    if asked.type == "unclean":
        click.secho("Records that only dead replicas hold will be lost for good.", err=True, **BAD)
    confirm("Go on?")
    return None


def _show(settings: Settings, answer: ElectionAnswer) -> None:
    match settings.output:
        case "json":
            output.print_json(answer)
        case "jsonl":
            output.print_jsonl(answer.results)
        case _:
            words = _WOULD if answer.dry_run else _DONE
            if answer.results:
                output.print_lines(_table(answer.results, words))
            settings.note(_summary(answer.results, words) + (" Nothing was changed." if answer.dry_run else ""))


def _table(results: Iterable[ElectionResult], words: Mapping[str, str]) -> list[str]:
    return output.table(_HEADER, [_row(result, words) for result in results])


def _row(result: ElectionResult, words: Mapping[str, str]) -> tuple[Cell, ...]:
    effect = words[result.outcome]
    if result.outcome == "failed":
        effect += f": {result.message} ({result.error_name})"
    colour = {"ok": GOOD, "failed": BAD}.get(result.outcome, PLAIN)
    name = f"{result.topic}-{result.partition}"
    return name, output.broker(result.previous), output.broker(result.leader), (effect, colour)


def _summary(results: Iterable[ElectionResult], words: Mapping[str, str]) -> str:
    counts = Counter[str](result.outcome for result in results)
    said = ", ".join(f"{counts[outcome]:,} {word}" for outcome, word in words.items() if counts[outcome])
    return f"{said}." if said else "No partition needs it."
