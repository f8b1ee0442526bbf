"""Cost of the record of a controller event: the failure of one of thirty brokers, with and without it.

    python -m bench.tracing [--size 100000] [--rounds 100]

Each round measures the same failure in three forms, in changing order, in one process:

* `bare`: without the course of the event: no cause, no stage times, no election record, no spans.
* `recorded`: as by default, without a tracer provider of the host program.
* `exported`: with a tracer provider of OpenTelemetry's SDK and a processor that keeps the spans.

The store is in memory, so that the event has no part that waits. Requests are encoded, and nobody answers them: the
response to a request is a small event of its own."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Final
from unittest import mock

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bench import goals
from bench.clusters import Shape
from bench.election import BROKERS, TOPICS, Bench, median, running
from bench.figures import Found
from bench.run import main, module, say
from kactl.config.controller_settings import CHUNK_PARTITIONS
from kactl.telemetry.event_record import StageTime
from kactl.telemetry.metrics import Telemetry

NAME: Final = "tracing"
FORMS: Final = ("bare", "recorded", "exported")


@contextlib.contextmanager
def form_of(bench: Bench, form: str, exporting: Telemetry) -> Iterator[None]:
    """Runs the block with a controller that records its events in one of the forms."""
    events, idle = bench.loop.events, bench.loop.context.history.idle
    if form == "recorded":
        yield
    elif form == "exported":
        with mock.patch.object(events, "_telemetry", exporting):
            yield
    else:
        with (
            mock.patch.object(events, "begin", return_value=idle),
            mock.patch.object(events, "end"),
            mock.patch.object(StageTime, "__enter__", _enter),
            mock.patch.object(StageTime, "__exit__", _exit),
        ):
            yield


def _enter(_: StageTime) -> None:
    return


def _exit(*_: object) -> None:
    return


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=100_000, help="partitions")
    parser.add_argument("--rounds", type=int, default=100, help="failures in each form")
    parser.add_argument("--full", action="store_true", help="the rounds of a published run: 1,000")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    exporting = Telemetry(tracer_provider=provider)
    totals: dict[str, list[float]] = {form: [] for form in FORMS}
    async with running(Shape(asked.size, min(TOPICS, asked.size), BROKERS), "memory", CHUNK_PARTITIONS) as bench:
        for number in range(1, 1 + (1_000 if asked.full else asked.rounds)):
            first = number % len(FORMS)
            for form in FORMS[first:] + FORMS[:first]:
                with form_of(bench, form, exporting):
                    # The same broker in all forms, which have to move the same partitions.
                    totals[form].append((await bench.fail(1 + number % BROKERS))["total"])
            spans.clear()
    for form, values in totals.items():
        for value in values:
            found.add(f"{asked.size}/{form}", "ms", value)
        say(f"{form:<9} {median(values):8.3f} ms in the median of {len(values)} failures, at least {min(values):.3f}")
    say(f"\n{goals.printed(found.figures(), NAME)}")


if __name__ == "__main__":
    main(module(__name__))
