"""Race of Kafka's controller and kactl, in turn, through the time-critical work of a controller.

    python -m bench.race --sizes 10x10000,30x100000 --runs 3 --output race.json

A run has a fresh ZooKeeper with a synthetic cluster, stub brokers in one process that record times, and one contender.
Runs of the contenders alternate. `bench.race.phases` defines the phases. Everything shares one machine, so that only
comparisons are meaningful. Needs Linux, Java 17, and Maven once, to download Kafka.
"""

import argparse
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from kazoo.exceptions import KazooException

from bench.clusters import Shape
from bench.figures import Found, Results
from bench.run import event_loop, say, words
from tests.support import jars
from tests.support.processes import HarnessError

from .contenders import CONTENDERS, IBP, SESSION_TIMEOUT_MS
from .phases import MAY_BE_SKIPPED, PHASES, run
from .report import whole
from .scene import Settings, staged

NAME: Final = "race"
PARTITIONS_OF_A_TOPIC: Final = 20
_REPLICAS: Final = 3
_FAILED: Final = 1
_UNUSABLE: Final = 2
_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if every run was completed, 1 if one was not, 2 if none is possible, 130 after Ctrl-C or SIGTERM."""
    asked = _parser().parse_args(argv)
    if sys.platform != "linux":
        print("the race counts what processes use as Linux tells it: run it there", file=sys.stderr)
        return _UNUSABLE
    if asked.keep is not None and asked.keep.exists():
        print(f"--keep: {asked.keep} is there already: name a folder that is not", file=sys.stderr)
        return _UNUSABLE
    if reason := jars.missing():
        print(f"the race runs real servers, as the interop tests do: {reason}", file=sys.stderr)
        return _UNUSABLE
    try:
        jars.class_path()
    except jars.JarsUnavailable as error:
        print(f"the race runs real servers: {error}", file=sys.stderr)
        return _UNUSABLE
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        results, failures = race(asked)
    except KeyboardInterrupt:
        print("stopped; every process of the race has ended", file=sys.stderr)
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    say(f"\n{whole(results)}")
    for failure in failures:
        print(f"not completed: {failure}", file=sys.stderr)
    return _FAILED if failures else 0


def race(asked: argparse.Namespace) -> tuple[Results, list[str]]:
    """Performs all runs. Returns the figures, and the runs that were not completed."""
    settings = Settings(
        warm_failovers=asked.warm_failovers,
        phase_limit_s=asked.phase_limit,
        stand_by_s=asked.stand_by,
        rest_s=asked.rest,
        zookeeper_heap_mb=asked.zookeeper_heap,
        skip=asked.skip,
        until=asked.until,
    )
    found = Found(
        NAME,
        settings={
            "sizes": asked.sizes,
            "runs": asked.runs,
            "contenders": asked.contenders,
            "warm failovers": settings.warm_failovers,
            "stand by s": settings.stand_by_s,
            "skip": settings.skip,
            "until": settings.until,
            "partitions of a topic": PARTITIONS_OF_A_TOPIC,
            "replicas": _REPLICAS,
            "protocol level": IBP,
            "session timeout ms": SESSION_TIMEOUT_MS,
            "ZooKeeper heap MB": settings.zookeeper_heap_mb,
        },
    )
    found.versions = server_versions(jars.class_path())
    loop = event_loop("auto")
    failures: list[str] = []
    for size in asked.sizes:
        brokers, partitions = shape_of(size)
        shape = Shape(partitions, partitions // PARTITIONS_OF_A_TOPIC, brokers, _REPLICAS)
        for turn, name in turns(asked.contenders, asked.runs):
            say(f"{size} {name}, run {turn} of {asked.runs}")
            keep = None if asked.keep is None else asked.keep / f"{size}-{name}-{turn}"
            try:
                _run(shape, settings, found, name=name, size=size, keep=keep)
            except (HarnessError, KazooException) as error:
                failures.append(f"{size} {name}, run {turn}: {error or type(error).__name__}")
                say(f"  not completed: {error or type(error).__name__}")
            if asked.output is not None:
                found.write(asked.output, loop=loop)
    return found.results(loop=loop), failures


def turns(contenders: Sequence[str], runs: int) -> Iterator[tuple[int, str]]:
    """Returns the order of contenders, each with the number of its run from 1.

    The first contender of a round has a slightly colder machine, so that the contenders take turns.
    """
    for turn in range(1, runs + 1):
        for name in contenders if turn % 2 else reversed(contenders):
            yield turn, name


def shape_of(size: str) -> tuple[int, int]:
    """Returns the brokers and partitions of a size such as 30x100000.

    Raises:
        ValueError: the text is not a size, or such a cluster is impossible.
    """
    matched = re.fullmatch(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,6})", size)
    if matched is None:
        raise ValueError(f"a size is brokers x partitions, as 30x100000, not {size!r}")
    brokers, partitions = int(matched[1]), int(matched[2])
    if brokers < _REPLICAS or partitions % PARTITIONS_OF_A_TOPIC:
        raise ValueError(
            f"{size}: at least {_REPLICAS} brokers, which is how many replicas there are, and partitions for topics of "
            f"{PARTITIONS_OF_A_TOPIC}"
        )
    return brokers, partitions


def server_versions(class_path: str) -> dict[str, str]:
    """Returns the versions of the servers' jars and of Java."""
    found = {}
    for what, jar in (("kafka", r"kafka_[0-9.]+-([0-9.]+)\.jar"), ("zookeeper", r"zookeeper-([0-9.]+)\.jar")):
        matched = re.search(jar, class_path)
        found[what] = matched[1] if matched else "unknown"
    output = subprocess.run(
        [jars.java_program() or "java", "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    matched = re.search(r'version "([^"]+)"', output)
    return found | {"java": matched[1] if matched else "unknown"}


def _run(shape: Shape, settings: Settings, found: Found, *, name: str, size: str, keep: Path | None) -> None:
    began = time.monotonic()

    def told(phase: str, times: dict[str, float]) -> None:
        shown = ", ".join(f"{part} {value:.3f}" for part, value in times.items())
        say(f"  {phase}: {shown}")

    with staged(shape, settings, start=CONTENDERS[name], found=found, path=f"{size}/{name}", keep=keep) as scene:
        say(f"  the cluster is there after {time.monotonic() - began:.1f} s")
        run(scene, told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.race",
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--sizes", type=_sizes, default=_sizes("10x10000,30x100000,100x200000"), help="brokers x partitions, by commas")
    add("--runs", type=int, default=3, help="of each contender at each size")
    add("--contenders", type=_of(CONTENDERS), default=tuple(CONTENDERS), help="by commas")
    add("--warm-failovers", type=int, default=2, help="in each run")
    add("--skip", type=_of(MAY_BE_SKIPPED), default=(), help=f"phases, by commas, of {', '.join(MAY_BE_SKIPPED)}")
    add(
        "--until",
        choices=tuple(PHASES),
        default="topic deletion",
        help="the last phase; takeover takes a session timeout more",
    )
    add("--phase-limit", type=float, default=300.0, metavar="SECONDS", help="for what is waited for in a phase")
    add("--stand-by", type=float, default=10.0, metavar="SECONDS", help="before a standby may take over")
    add("--rest", type=float, default=0.5, metavar="SECONDS", help="of doing nothing, after which a phase is over")
    add("--zookeeper-heap", type=int, default=2048, metavar="MB", help="of the ZooKeeper server")
    add("--output", type=Path, help="write all figures there, as JSON")
    add("--keep", type=Path, metavar="FOLDER", help="keep configuration, logs and data of every run; some gigabytes")
    return parser


def _sizes(text: str) -> tuple[str, ...]:
    found = words(text)
    try:
        for size in found:
            shape_of(size)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return found


def _of(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        found = words(text)
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
        return found

    return parse


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handles a signal like Ctrl-C, so that all processes are stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
