"""`kactl elect`: requested elections, with a preview."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import click
import msgspec

from kactl.admin.schema import ElectionAnswer, ElectionRequest, ElectionResult, PartitionName, TopicDetail

from . import output
from .api_client import confirm, quoted, require_terminal
from .common_options import Settings, dry_run_option, given_file, options, own_reason, reason_option, yes_option
from .exits import Exit
from .output import BAD, GOOD, PLAIN, Cell
from .partition_files import NamesFile, names_of, parsed, read

# Outcome of a partition: after the election, and in a preview.
_DONE: Final = {"ok": "moved", "not_needed": "not needed", "failed": "failed"}
_WOULD: Final = {"ok": "would move", "not_needed": "not needed", "failed": "cannot"}
_HEADER: Final = ("PARTITION", "FROM", "TO", "EFFECT")


@click.command(short_help="Elect leaders: the preferred ones, or unclean ones.")
@click.argument("kind", type=click.Choice(["preferred", "unclean"]))
@click.argument("argument", required=False, metavar="[FILE]")
@click.option("--all", "everything", is_flag=True, help="All partitions that need an election.")
@click.option("-p", "--partition", "names", multiple=True, metavar="T-P", help="This partition; may be repeated.")
@click.option("--topic", metavar="T", help="All partitions of this topic.")
@click.option(
    "-f", "--file", "file", metavar="FILE", help="Partitions of a file in the format of Kafka's tools; -: stdin."
)
@dry_run_option
@yes_option
@reason_option
@options
def elect(
    settings: Settings,
    *,
    kind: Literal["preferred", "unclean"],
    everything: bool,
    names: tuple[str, ...],
    topic: str | None,
    argument: str | None,
    file: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
) -> None:
    """Elect leaders.

    `preferred` makes the first assigned replica the leader. `unclean` elects an out-of-sync replica if no in-sync
    replica is alive: records that it lacks are lost permanently.
    """
    file = given_file(click.get_current_context(), argument, file)
    if sum((everything, bool(names), topic is not None, file is not None)) != 1:
        raise click.UsageError("select partitions with exactly one of --all, -p T-P ..., --topic T and -f FILE")
    settings.form()
    if topic is not None:
        chosen = _of_topic(settings, topic)
    elif file is not None:
        chosen = names_of(read(file, NamesFile))
    else:
        chosen = [parsed(name) for name in names]
    request = ElectionRequest(
        type=kind,
        partitions=None if everything else chosen,
        all=everything,
        dry_run=dry_run,
        reason=own_reason() if kind == "unclean" and not reason.strip() else reason,
    )
    answer = None if dry_run or yes else _confirm(settings, request)
    if answer is None:
        answer = settings.api.post("/v1/elections", request, ElectionAnswer)
    _show(settings, answer)
    if any(result.outcome == "failed" for result in answer.results):
        click.get_current_context().exit(Exit.FAILED)


def _of_topic(settings: Settings, topic: str) -> list[PartitionName]:
    detail = settings.api.get(f"/v1/topics/{quoted(topic)}", TopicDetail)
    return [PartitionName(topic=topic, partition=number) for number in range(detail.topic.partitions)]


def _confirm(settings: Settings, request: ElectionRequest) -> ElectionAnswer | None:
    """Show a preview and ask for confirmation.

    Returns:
        the preview, if no leader would change, so that nothing needs to be confirmed; None if confirmed.

    Raises:
        Failure: PRECONDITION; not confirmed, or there is no terminal.
    """
    require_terminal()
    preview = settings.api.post("/v1/elections", msgspec.structs.replace(request, dry_run=True), ElectionAnswer)
    if not any(result.outcome == "ok" for result in preview.results):
        return preview
    for line in _table(preview.results, _WOULD):
        click.echo(line, err=True)
    click.echo(_summary(preview.results, _WOULD), err=True)
    if request.type == "unclean":
        click.secho("Records that only dead replicas have will be lost permanently.", err=True, **BAD)
    confirm("Continue?")
    return None


def _show(settings: Settings, answer: ElectionAnswer) -> None:
    if settings.printed(answer, answer.results):
        return
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
    elif result.message:
        effect += f": {result.message}"
    colour = {"ok": GOOD, "failed": BAD}.get(result.outcome, PLAIN)
    name = f"{result.topic}-{result.partition}"
    return name, output.broker(result.previous), output.broker(result.leader), (effect, colour)


def _summary(results: Iterable[ElectionResult], words: Mapping[str, str]) -> str:
    counts = Counter[str](result.outcome for result in results)
    summary = ", ".join(f"{counts[outcome]:,} {word}" for outcome, word in words.items() if counts[outcome])
    return f"{summary}." if summary else "No partition needs an election."
