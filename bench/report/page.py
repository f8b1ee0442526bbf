"""Text of docs/performance.md; its figures come from stored runs."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from bench.figures import Results
from bench.goals import GOALS
from bench.tables import markdown, times

from . import benches, pipeline, race
from .parts import Parts

_HEAD: Final = """\
# Performance

`python -m bench.report bench/results --out docs/performance.md` generates this page from stored runs. Every number,
ratio and curve comes from the JSON files in `bench/results/`, which contain each single run, the machine, the
versions and the settings. [bench/README.md](../bench/README.md) explains how to repeat the runs."""

_METHOD: Final = """\
## Method

* **Only ratios within one run are meaningful.** Everything ran on the machine named below: contenders, stores and
  stub brokers. Another machine yields other numbers. Contenders ran in turn, so that other load affects both.
* A figure is the median of its runs, with the minimum and maximum in parentheses. A ratio is that of two medians,
  with the range over *all* pairings of two runs in parentheses, from the worst for kactl to the best. With three to
  five runs, a bootstrap interval would be narrower, and wrong.
* The garbage collector is configured as in kactl's own processes: it does not run within an event, and its work
  between events is not counted. The object form and Kafka's controller use their default collectors.
* Commits are durable: SQLite with `synchronous=FULL`, ZooKeeper with its default of forcing its log to disk.
* Bytes are those of Kafka's protocol, in the newest version of each request unless a table states otherwise."""

_RACE: Final = """\
## Comparison with Kafka's controller

Kafka 3.9, with one real broker that holds no replica, and kactl as a server run in turn. Each runs over a fresh
ZooKeeper with the same synthetic cluster and the same stub brokers. Stub brokers register as real brokers do, respond
immediately, and record the time of the last byte of each request. All phases begin and end outside the contenders: at
a transaction in ZooKeeper, and at the last byte at the last broker. `bench/race/phases.py` defines them."""

_ANSWERS: Final = """\
## Answers about topics

Two clusters of three real brokers over one ZooKeeper; kactl controls one, a broker the other. Topics of six partitions
with three replicas are created by turns, then get three partitions more. *Answer* is the response to the client,
*complete* is when the metadata of each broker has a leader for each partition, and *looks behind* are brokers that do
not know the change when they are asked right after the answer. *Longest order* is the time that the slowest broker
takes for its LeaderAndIsr, by its own log: it creates the files of its replicas, and answers. No client can use the
topic before. This is most of the time under both controllers; kactl's own part is some ten milliseconds on processors
that are free (bench/README.md), and more in this run, beside much other load. Kafka's controller waits for the
metadata of its own broker only, kactl for the slowest broker: on a quiet machine its answer takes 1.14 times as long
(52.8 and 46.2 ms), the topic is complete after 1.01 times (63.5 and 63.0 ms), and 0 of 180 looks are behind, of
Kafka's 42."""

_OWNERSHIP: Final = """\
## Shards with one owner each

Worker processes share shards, as participants of kactl in an ownership topic, as consumers of a group with the
assignor cooperative-sticky on three Kafka brokers, as candidates of all shards at the election service of etcd, or
with a leader key for each shard by the library of Patroni. *Deploy* stops each worker in order and starts it again,
one after the other; a change of owner is another worker's begin of work. *Without owner* is the time between the two,
at each change. *Join* is one worker more. *Kill* and *all restarted* (kill -9 of all workers, and of kactl's
controller or etcd's server; Kafka's brokers stay) last until all shards are owned, and include the starts of the
programs. *Busiest above average* counts shards 5 s after each change. Elections and locks have no idea of shares: the
first worker gets everything. The machine had much other load, which lengthens all times: the programs alone took up
to 20 s to start. Locks of Patroni were lost to it, so that work began more often than the owner changed."""

_ELECTION: Final = """\
## Broker failure

In one process: from the event to a durable decision and the bytes of all requests. The controller's own handlers run
over SQLite; an encoder that encodes every request immediately replaces the channels. One of 30 brokers fails. It
holds a tenth of all partitions and leads a third of these. The object form is the one with which the tests compare
the columns: the same protocol in plain Python objects, with a dict as the store and requests packed one by one."""

_FAILOVER: Final = """\
## Takeover

A whole controller instance in one process with its store (except ZooKeeper) and with brokers that respond
immediately, measured from the moment at which the previous holder resigns. A *cold* instance has no state. A *warm*
one was a standby with a copy, and a hundred partitions have changed since its last check. The moments are: the
controllership is won (`elected`), the cluster is loaded (`loaded`), the first request with partitions is encoded
(`first bytes`), the last one is encoded (`told`), and the instance accepts requests (`ready`)."""

_OUTAGE: Final = """\
## Loss of a process with participants

One process of participants is killed with SIGKILL, in turn; its partitions have replicas in other processes. The
controller, which keeps the sessions, and all participants share the machine, over TCP on loopback. *All led* is the
time from the kill until the `lead` of another participant has been called for every partition, under a valid lease.
Most of it is the session timeout, after which a leader that only hangs has provably stopped; the last column is the
rest, and below zero if the last heartbeat was sent early enough before the kill."""

_SECURITY: Final = """\
## Security of a listener

Processor time of the process with a Kafka listener; its client is another process. A connection has the handshake of
TLS, the login by SCRAM-SHA-512 and one ApiVersions; a request is a ListPartitionReassignments. `open` is a listener in
clear text that does not authorize; all others decide by access control lists."""

_ENCRYPTION: Final = """\
## Encrypted connections to brokers

A takeover without a copy and the failure of one of thirty brokers, each to the last response of a broker, over SQLite.
Requests go through sockets on loopback to stub brokers in another process. Protocols take turns; an instance opens all
of its connections during its takeover, and logs in by SCRAM-SHA-512 with SASL_SSL. *Processor* is the time of the
controller's process."""

_LATENCY: Final = """\
## Small requests during a large event

Elections of single partitions on a fixed schedule, timed from when they were *due*, so that waiting behind a long
event is counted completely. `idle` is without other load. `loaded` is from the end of a broker's session until the
last of its partitions has been sent to all brokers. `durable` is the response; `told` is when the request for the new
leader is encoded."""

_CHANNEL: Final = """\
## Requests to brokers

*Encoding* begins with columns and ends with bytes. A body that several brokers share is encoded once; each further
broker costs the time in the column "body known". *Sending* is the requests of a failover, through sockets on loopback
to a process that only receives them and uses one of the two cores. The *slow broker* does not respond while others
fail and return one after the other; its queued requests are coalesced or, with `parity`, sent unchanged."""

_STORE: Final = """\
## Stores

Per partition: reading its leadership, reading its topic, and writing 10,000 partitions in one commit, by
compare-and-set with a fence. *ZooKeeper alone* is prepared requests whose responses are not decoded: a lower bound
for any client, over the same server and the same nodes."""

_STORES: Final = """\
## Durable stores in turn

A commit of 10,000 partitions, a takeover without a copy, and the failure of one of thirty brokers, over SQLite,
ZooKeeper and etcd. The stores take turns in one process, so that other load affects all of them. ZooKeeper and etcd are
one server each."""

_FORENSICS: Final = """\
## Forensics

Logs of synthetic clusters with failures whose history is known: several versions, at INFO and at TRACE, in
containers, rotated, a third of them compressed. *Ingest* reads all of them and writes Parquet. The first ingest of a
process also starts Spark's Python workers and lets Java compile its code. *All jobs* is every job of `kactl forensics
report`, several at a time; *one by one* shows the processor time of each. With few lines, most of it is Spark's
planning."""

_WHATIF: Final = """\
## What-if analysis

Every combination of failed brokers of a kind: opening a snapshot in memory, and each sweep with explanations of its
ten worst scenarios. Partitions with the same outcome in every scenario form one class. With random placement there
are nearly as many classes as partitions, which is the worst case."""

_LIMITS: Final = """\
## Limitations

* **Real brokers.** Stub brokers respond immediately; real ones open logs and fetch. This adds the same time to every
  controller, and makes every ratio of times smaller than here. Tests check that real brokers apply the requests; they
  do not time them.
* **Networks and quorums.** There is one ZooKeeper server, on loopback, with a local disk. A round trip of a
  millisecond slows a controller that makes many of them in sequence; a quorum makes transactions more expensive.
* **Two cores for everything.** In the race, ZooKeeper, the stub brokers and the contender share them. On a larger
  machine a contender with many threads gains, and so does one that waits less.
* **One process under one interpreter lock.** Encoding in a worker thread keeps the event loop responsive, and does
  not make it faster. At some size, the bytes of UpdateMetadata to every broker dominate, and so do the sockets of
  both sides.
* **Durable writes** depend on the disk: over SQLite at least one forced write per commit, over ZooKeeper one per
  group of transactions. They dominate an idle election.
* Percentiles beyond p99 are based on a few events each; the tables contain the number of elections.
* The object form shows the benefit of columns and is no statement about Kafka; only the race is."""

_MAKE: Final = """\
## Repeating the runs

```sh
make bench-all                             # all benchmarks except the race: half an hour or more
make race                                  # Kafka and kactl: half an hour or more; needs Java and Maven
.venv/bin/python -m bench.report bench/results --out docs/performance.md
.venv/bin/python -m bench.compare before/election.json bench/results/election.json
```"""

Section = Callable[[Results, Parts], str]
SECTIONS: Final[Mapping[str, tuple[str, Section]]] = {
    "race": (_RACE, race.section),
    "answers": (_ANSWERS, benches.answers),
    "ownership": (_OWNERSHIP, benches.ownership),
    "election": (_ELECTION, benches.election),
    "failover": (_FAILOVER, benches.failover),
    "outage": (_OUTAGE, benches.outage),
    "latency": (_LATENCY, benches.latency),
    "channel": (_CHANNEL, benches.channel),
    "store": (_STORE, benches.store),
    "stores": (_STORES, benches.stores),
    "security": (_SECURITY, benches.security),
    "encryption": (_ENCRYPTION, benches.encryption),
    "forensics": (_FORENSICS, pipeline.forensics),
    "whatif": (_WHATIF, pipeline.whatif),
}


def page(results: Mapping[str, Results], parts: Parts) -> str:
    """Returns the text of the page. A benchmark without results is marked as not measured."""
    sections = [_HEAD, goals(results), _METHOD, machines(results)]
    for name, (about, section) in SECTIONS.items():
        sections.append(about)
        if name in results:
            sections.append(section(results[name], parts))
        else:
            command = "make race" if name == "race" else f"python -m bench.{name} --full"
            sections.append(f"*Not measured in the published run: `{command}`.*")
    return "\n\n".join((*sections, _LIMITS, _MAKE)) + "\n"


def goals(results: Mapping[str, Results]) -> str:
    """Returns the goals of all benchmarks except the race, which has goals in its own tables."""
    rows = []
    for goal in GOALS:
        measured = goal.of(results[goal.bench].figures) if goal.bench in results else None
        if measured is None:
            rows.append([goal.what, "not measured", goal.wanted, ""])
        else:
            rows.append(
                [goal.what, times(measured), goal.wanted, "" if goal.reached(measured.value) else "not reached"]
            )
    return "## Goals\n\n" + markdown(["ratio within one run", "measured", "goal", ""], rows)


def machines(results: Mapping[str, Results]) -> str:
    """Returns the machines, settings and versions of the runs; equal machines share a row."""
    if not results:
        return "*There are no results.*"
    by_machine: dict[str, list[str]] = {}
    for name, result in results.items():
        machine = msgspec.structs.asdict(result.machine)
        memory = f"{machine.pop('memory_mb') / 1024:.0f} GiB"
        description = f"{machine['cpu']}, {machine['cores']} cores, {memory}, {machine['kernel']}, {machine['python']}"
        by_machine.setdefault(f"{description}, {machine['loop']}", []).append(name)
    rows = [[", ".join(names), description] for description, names in by_machine.items()]
    versions = [
        [name, ", ".join(f"{package} {version}" for package, version in result.versions.items())]
        for name, result in results.items()
    ]
    return "\n\n".join(
        (
            markdown(["benchmark", "machine and event loop"], rows),
            markdown(["benchmark", "time", "settings"], benches.settings_of(results.values())),
            "<details><summary>Versions</summary>\n\n"
            + markdown(["benchmark", "versions"], versions)
            + "\n\n</details>",
        )
    )
