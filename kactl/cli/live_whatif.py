"""`kactl whatif`: partitions of the running cluster that would be offline if brokers or racks failed."""

import itertools
from collections.abc import Iterator
from typing import Final, cast

import click

from kactl.admin.schema import FailureSet, SweepName, WhatIf, WhatIfRequest
from kactl.decide.whatif import Answer, RestartPlan, RestartStep

from . import output
from .common_options import Settings, options
from .exits import Exit, Failure
from .output import BAD, NONE, PLAIN, WARN, Cell
from .whatif_options import SWEEPS, kill_option, sweeps_of

_RACK: Final = "rack="
_STEPS: Final = ("STEP", "BROKERS", "RACKS", "OFFLINE", "LOSSY", "UNDER MIN", "MOVED")


@click.command(short_help="Simulate failures in the running cluster.")
@kill_option
@click.option(
    "--sweep",
    metavar="KINDS",
    help=f"Every case of: {', '.join(SWEEPS)}.  [without other options: brokers, pairs, known racks]",
)
@click.option(
    "--restart",
    type=click.IntRange(min=1, max=1000),
    metavar="N",
    help="Plan a rolling restart with at most N brokers at a time.",
)
@click.option(
    "--top", type=click.IntRange(min=1, max=100), default=10, show_default=True, metavar="N", help="Show N worst cases."
)
@options
def whatif(settings: Settings, *, kills: tuple[str, ...], sweep: str | None, restart: int | None, top: int) -> None:
    """Report partitions that would have no leader, or reject writes, if brokers failed: the given ones, every single
    broker, every pair, every rack, or all in a rolling restart.

    The controller simulates its cluster as it is now; nothing is changed. `kactl forensics whatif` does the same for
    the cluster in logs or in a file.

    \b
      kactl whatif --kill 3,4
      kactl whatif --restart 2
    """
    form = settings.form()
    request = WhatIfRequest(
        kill=[_failing(text) for text in kills],
        sweeps=None if sweep is None else cast(list[SweepName], [kind.value for kind in sweeps_of(sweep)]),
        restart=restart,
        top=top,
    )
    result = settings.api.post("/v1/whatif", request, WhatIf)
    if form in output.DATA:
        analysis = result.analysis
        worst = (outcome for each in analysis.sweeps for outcome in each.worst)
        steps = () if result.restart is None else result.restart.steps
        output.print_data(form, result, itertools.chain(analysis.killed, worst, analysis.rolling, steps))
    else:
        output.print_lines(_lines(result))
    for note in result.analysis.notes:
        settings.note(note)
    settings.note(_cost(result.analysis))


def _failing(text: str) -> FailureSet:
    brokers, racks = [], []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.startswith(_RACK):
            racks.append(word.removeprefix(_RACK))
        elif word.isascii() and word.isdecimal() and len(word) < 10:
            brokers.append(int(word))
        else:
            raise Failure(f"--kill: {word!r} is not a broker id: write 3,4, or rack={word} for a rack", Exit.USAGE)
    if not (brokers or racks):
        raise Failure(f"--kill: {text!r} names no broker: write 3,4 or rack=a", Exit.USAGE)
    return FailureSet(brokers=brokers, racks=racks)


def _lines(result: WhatIf) -> Iterator[str]:
    from .whatif_text import lines

    yield from lines(result.analysis)
    if result.shards:
        yield ""
    yield from (output.harmless(each.explained) for each in result.shards)
    if result.restart is not None:
        yield ""
        yield from _plan(result.restart)


def _plan(plan: RestartPlan) -> Iterator[str]:
    limit = output.count(plan.together, "broker")
    yield click.style(
        f"Rolling restart with at most {limit} at a time, each step back in all ISRs before the next", bold=True
    )
    yield from output.table(_STEPS, (_row(number, step) for number, step in enumerate(plan.steps, 1)))
    moves = output.count(plan.moves, "time")
    verdict = (
        "no step takes a partition offline or leaves too few replicas in sync"
        if not plan.harmful
        else f"{output.count(plan.harmful, 'step')} cannot be made harmless by any order: move or add replicas first"
    )
    yield f"Ordered {plan.order}; leaders move {moves}; {verdict}."


def _row(number: int, step: RestartStep) -> tuple[Cell, ...]:
    return (
        str(number),
        output.numbers(step.brokers),
        ",".join(step.racks) or NONE,
        (str(step.offline_more), BAD if step.offline_more else PLAIN),
        (str(step.lossy), BAD if step.lossy else PLAIN),
        (str(step.under_min_more), WARN if step.under_min_more else PLAIN),
        str(step.moved),
    )


def _cost(analysis: Answer) -> str:
    cost = analysis.cost
    size = f"{output.count(analysis.now.partitions, 'partition')} in {cost.classes:,} classes"
    return f"{output.count(cost.scenarios, 'scenario')} over {size}: {cost.seconds * 1000:.0f} ms."
