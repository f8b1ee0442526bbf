"""The page: what is said around the tables. Figures come from stored runs, sentences from people."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from bench.figures import Results
from bench.goals import GOALS
from bench.tables import markdown, times

from . import benches, pipeline, race
from .parts import Parts

_HEAD: Final = """\
# What kactl costs

This page is made by a command from the figures of stored runs, `python -m bench.report bench/results --out
docs/performance.md`: every number, ratio and curve below comes from the JSON files in `bench/results/`, which hold each
single run, and the machine, the versions and the settings. [How to run it again](../bench/README.md)."""

_METHOD: Final = """\
## How it is measured

* **Only ratios within one run mean something.** Everything ran on the machine named below, contenders, stores and stub
  brokers together; another one gives other numbers. What is compared ran by turns, so that a busy minute meets both.
* A figure is the median of its runs, with the least and the greatest in parentheses. A ratio is that of two medians; in
  parentheses stands what *any* pairing of two runs lies between, from the worst for us to the best. With three to five
  runs a bootstrap would be narrower, and wrong.
* The garbage collector is treated as in kactl's own processes: it does not run within an event, and its work between
  events is not counted. The object form, and Kafka's controller, have theirs as they come.
* Durable means durable: SQLite with `synchronous=FULL`, ZooKeeper with its default of forcing its log to disk.
* Bytes are Kafka's, in the newest version of each request unless a table says otherwise."""

_RACE: Final = """\
## Beside Kafka's own controller

Kafka 3.9 with one real broker that holds no replica, and kactl as it is run as a server, in turn, over a fresh
ZooKeeper with the same synthetic cluster and the same stub brokers, which register as real ones do, answer at once, and
stamp each request on its last byte. All phases begin and end outside of the contenders: at a transaction in ZooKeeper,
and at the last byte at the last broker. `bench/race/phases.py` says where exactly."""

_ELECTION: Final = """\
## A broker fails

In one process: from the event to a durable decision and the bytes of all requests. The controller's own handlers run
over SQLite; in place of channels stands what encodes every request at once. One of 30 brokers fails; it holds a tenth
of all partitions and leads a third of these. The object form is the one that the tests hold the columns against: the
same protocol in plain Python objects, its store a dict that answers at once, its bytes packed one by one."""

_FAILOVER: Final = """\
## Taking over

A whole controller instance, in one process with its store (but for ZooKeeper) and with brokers that take everything at
once, from the moment at which the one before lets go. *Cold* knows nothing; *warm* has stood by and read beforehand,
and a hundred partitions have changed since it last looked. All moments are counted from there: the controllership is
ours (`elected`), everything is known (`loaded`), the first request that speaks of partitions is in bytes (`first
bytes`), the last one is (`told`), and requests are taken (`ready`)."""

_LATENCY: Final = """\
## Small requests in the middle of a large event

Elections of single partitions, asked for by schedule and timed from when they were *due*, so that whoever waits behind
something long is counted with all of his waiting. `idle` is while nothing else happens; `loaded` is from the end of a
broker's session until the last of its partitions has been told to everybody. `durable` is the answer; `told` is when
the bytes for the new leader are made."""

_CHANNEL: Final = """\
## On the way to the brokers

*Encoding* begins with columns and ends with bytes; the body that several brokers share is made once, and all others
cost what stands under "body known". *Sending* is what a failover tells everybody, through sockets on loopback to a
process that only takes it, which uses one of the two cores. The *slow broker* takes nothing while others fail and come
back one after the other; what waits for it is put together, or, with `parity`, sent as it was said."""

_STORE: Final = """\
## What the stores take

Of each partition: reading its leadership, reading its topic, and writing 10,000 of them in one commit, by
compare-and-set under a fence. *ZooKeeper by itself* is requests made beforehand whose answers nobody takes apart:
what no client can undercut, over the same server and the same nodes."""

_FORENSICS: Final = """\
## From logs to answers

Logs of synthetic clusters in trouble, whose truth is known: several versions, at INFO and at TRACE, in containers,
rotated, a third of them packed. *Ingest* reads all of them and writes Parquet; the first one of a process also starts
Spark's Python workers and has Java compile what it runs. *All jobs* is every job of `kactl forensics report`, several
at once; *one by one* shows whose processor time it is. Of few lines most of it is Spark's planning."""

_WHATIF: Final = """\
## What if

Every way in which brokers of a cluster could die: opening a snapshot that lies in memory, and each sweep with its ten
worst explained. Partitions that would share every fate are one class; replicas placed at random make nearly as many
classes as partitions, which is as bad as it can be."""

_LIMITS: Final = """\
## What is not measured, and what bounds it

* **Real brokers.** Stub brokers answer at once; real ones open logs and fetch. That adds the same to every controller,
  and makes every ratio of times smaller than it is here. That real brokers do what they are told is tested, not timed.
* **Networks and quorums.** There is one ZooKeeper server, on loopback, with a disk of its own kind. A round trip of a
  millisecond hurts whoever makes many of them one after the other; a quorum makes transactions dearer.
* **Two cores for everything.** In the race, ZooKeeper, the stub brokers and the contender share them. On a larger
  machine a contender with many threads gains, and so does one that has less to wait for.
* **One process under one interpreter lock.** Encoding in a worker thread lets the event loop answer meanwhile, and does
  not make it faster. At some size the bytes of UpdateMetadata to every broker are what is left, and the sockets of the
  other side as much as ours.
* **Durable writes** cost what the disk says: over SQLite at least one forced write for every commit, over ZooKeeper one
  for every group of transactions. An idle election is mostly that.
* The percentiles beyond p99 rest on a few events each; the number of elections stands beside them.
* The object form shows what columns are worth, and nothing of Kafka; only the race does that."""

_MAKE: Final = """\
## Make it again

```sh
make bench-all                             # the benches in one process: half an hour and more
make race                                  # Kafka and kactl: half an hour and more; needs Java and Maven
.venv/bin/python -m bench.report bench/results --out docs/performance.md
.venv/bin/python -m bench.compare before/election.json bench/results/election.json
```"""

Section = Callable[[Results, Parts], str]
SECTIONS: Final[Mapping[str, tuple[str, Section]]] = {
    "race": (_RACE, race.section),
    "election": (_ELECTION, benches.election),
    "failover": (_FAILOVER, benches.failover),
    "latency": (_LATENCY, benches.latency),
    "channel": (_CHANNEL, benches.channel),
    "store": (_STORE, benches.store),
    "forensics": (_FORENSICS, pipeline.forensics),
    "whatif": (_WHATIF, pipeline.whatif),
}


def page(results: Mapping[str, Results], parts: Parts) -> str:
    """The whole page; a bench without results is named as not measured."""
    said = [_HEAD, goals(results), _METHOD, machines(results)]
    for name, (about, section) in SECTIONS.items():
        said.append(about)
        if name in results:
            said.append(section(results[name], parts))
        else:
            command = "make race" if name == "race" else f"python -m bench.{name} --full"
            said.append(f"*Not measured in the published run: `{command}`.*")
    return "\n\n".join((*said, _LIMITS, _MAKE)) + "\n"


def goals(results: Mapping[str, Results]) -> str:
    """What was aimed at in one process, and what came of it; those of the race stand with the race."""
    rows = []
    for goal in GOALS:
        found = goal.of(results[goal.bench].figures) if goal.bench in results else None
        if found is None:
            rows.append([goal.what, "not measured", goal.wanted, ""])
        else:
            rows.append([goal.what, times(found), goal.wanted, "" if goal.reached(found.value) else "not reached"])
    return "## What was aimed at\n\n" + markdown(["ratio within one run", "found", "wanted", ""], rows)


def machines(results: Mapping[str, Results]) -> str:
    """On what, with what, and when; once for all benches that agree."""
    if not results:
        return "*There are no results.*"
    by_machine: dict[str, list[str]] = {}
    for name, each in results.items():
        machine = msgspec.structs.asdict(each.machine)
        memory = f"{machine.pop('memory_mb') / 1024:.0f} GiB"
        said = f"{machine['cpu']}, {machine['cores']} cores, {memory}, {machine['kernel']}, {machine['python']}"
        by_machine.setdefault(f"{said}, {machine['loop']}", []).append(name)
    rows = [[", ".join(names), said] for said, names in by_machine.items()]
    versions = [
        [name, ", ".join(f"{package} {version}" for package, version in each.versions.items())]
        for name, each in results.items()
    ]
    return "\n\n".join(
        (
            markdown(["bench", "machine and event loop"], rows),
            markdown(["bench", "made", "asked for"], benches.settings_of(results.values())),
            "<details><summary>Versions</summary>\n\n" + markdown(["bench", "versions"], versions) + "\n\n</details>",
        )
    )
