"""Partitions, one after the other, made columns; each is checked as it comes."""

from collections.abc import Collection, Sequence
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.whatif.partitions import SCHEMA, BadSnapshot

ID_MAX: Final = 2**31 - 1


class Builder:
    """Partitions of one source.

    Args:
        source: the file, for errors.
        unit: what is numbered in it: `line`.
    """

    def __init__(self, source: str, unit: str) -> None:
        self._source = source
        self._unit = unit
        self._numbers: list[int] = []
        self._min_isr: list[int | None] = []
        self._columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(
        self,
        number: int,
        topic: str,
        partition: int,
        *,
        leader: int,
        replicas: Collection[int],
        isr: Collection[int],
        elr: Collection[int] | None = None,
        min_isr: int | None = None,
    ) -> None:
        """One partition, and where it stands in the source. `min_isr`: what the source says of it, if anything.

        Raises:
            BadSnapshot: it cannot be so.
        """
        if len(set(replicas)) < len(replicas):
            self._refuse(number, f"{topic}-{partition} has the same replica twice: {_listed(replicas)}")
        ids = (partition, *replicas, *isr, *(elr or ()))
        if max(ids) > ID_MAX or min(ids) < 0 or leader > ID_MAX:
            self._refuse(number, f"{topic}-{partition}: numbers go from 0 to {ID_MAX}")
        if min_isr is not None and not 1 <= min_isr <= ID_MAX:
            self._refuse(number, f"{topic}-{partition}: min.insync.replicas is {min_isr}; it goes from 1 to {ID_MAX}")
        self._numbers.append(number)
        self._min_isr.append(min_isr)
        for name, value in zip(SCHEMA.names, (topic, partition, max(leader, -1), replicas, isr, elr), strict=False):
            self._columns[name].append(value)

    def table(self, *, min_isr: dict[str, int] | None = None, unclean: dict[str, bool] | None = None) -> pa.Table:
        """All of them. `min_isr`, `unclean`: what the source says of topics; of partitions it goes first.

        Raises:
            BadSnapshot: a partition stands there twice.
        """
        topics = self._columns["topic"]
        self._columns["min_isr"] = [
            (min_isr or {}).get(str(topic)) if own is None else own
            for topic, own in zip(topics, self._min_isr, strict=True)
        ]
        self._columns["unclean"] = [(unclean or {}).get(str(topic)) for topic in topics]
        self._columns["weight"] = [None] * len(topics)
        table = pa.table({name: pa.array(self._columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})
        found = twice(table, self._numbers)
        if found is not None:
            topic, partition, first, last = found
            self._refuse(last, f"{topic}-{partition} stands in {self._unit} {first} already: give one snapshot only")
        return table

    def _refuse(self, number: int, reason: str) -> NoReturn:
        raise BadSnapshot(f"{self._source}, {self._unit} {number}", reason)


def twice(table: pa.Table, numbers: Sequence[int]) -> tuple[str, int, int, int] | None:
    """A partition that a table has more than once, and the first and last of the rows' numbers that it has there."""
    keyed = table.select(["topic", "partition"]).append_column("number", pa.array(numbers, pa.int64()))
    counted = keyed.group_by(["topic", "partition"]).aggregate([("number", "min"), ("number", "max")])
    found = counted.filter(pc.less(counted["number_min"], counted["number_max"])).sort_by("number_max").slice(0, 1)
    for row in found.to_pylist():
        return row["topic"], row["partition"], row["number_min"], row["number_max"]
    return None


def _listed(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers))
