"""Table of partitions, built and checked one by one."""

from collections.abc import Collection, Sequence
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from kactl.forensics.whatif.tables import SCHEMA, BadSnapshot

ID_MAX: Final = 2**31 - 1


class Builder:
    """Builder of the table of one source.

    Args:
        source: name of the file, for errors.
        unit: what positions in it are called, such as `line`.
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
        """Add a partition at a position in the source; `min_isr` is its own min.insync.replicas, if given.

        Raises:
            BadSnapshot: a value is impossible.
        """
        if len(set(replicas)) < len(replicas):
            self._reject(number, f"{topic}-{partition} has the same replica twice: {_listed(replicas)}")
        ids = (partition, *replicas, *isr, *(elr or ()))
        if max(ids) > ID_MAX or min(ids) < 0 or leader > ID_MAX:
            self._reject(number, f"{topic}-{partition}: a number is outside 0 to {ID_MAX}")
        if min_isr is not None and not 1 <= min_isr <= ID_MAX:
            self._reject(number, f"{topic}-{partition}: min.insync.replicas is {min_isr}, outside 1 to {ID_MAX}")
        self._numbers.append(number)
        self._min_isr.append(min_isr)
        for name, value in zip(SCHEMA.names, (topic, partition, max(leader, -1), replicas, isr, elr), strict=False):
            self._columns[name].append(value)

    def table(self, *, min_isr: dict[str, int] | None = None, unclean: dict[str, bool] | None = None) -> pa.Table:
        """Return the table. `min_isr` and `unclean` are settings of topics; those of partitions take precedence.

        Raises:
            BadSnapshot: a partition is there twice.
        """
        topics = self._columns["topic"]
        self._columns["min_isr"] = [
            (min_isr or {}).get(str(topic)) if own is None else own
            for topic, own in zip(topics, self._min_isr, strict=True)
        ]
        self._columns["unclean"] = [(unclean or {}).get(str(topic)) for topic in topics]
        self._columns["weight"] = [None] * len(topics)
        table = pa.table({name: pa.array(self._columns[name], SCHEMA.field(name).type) for name in SCHEMA.names})
        repeated = twice(table, self._numbers)
        if repeated is not None:
            topic, partition, first, last = repeated
            self._reject(last, f"{topic}-{partition} is already in {self._unit} {first}: use one snapshot")
        return table

    def _reject(self, number: int, reason: str) -> NoReturn:
        raise BadSnapshot(f"{self._source}, {self._unit} {number}", reason)


def twice(table: pa.Table, numbers: Sequence[int]) -> tuple[str, int, int, int] | None:
    """Return a partition that a table has more than once, with its first and last number; None if there is none."""
    keyed = table.select(["topic", "partition"]).append_column("number", pa.array(numbers, pa.int64()))
    counted = keyed.group_by(["topic", "partition"]).aggregate([("number", "min"), ("number", "max")])
    repeated = counted.filter(pc.less(counted["number_min"], counted["number_max"])).sort_by("number_max")
    for row in repeated.slice(0, 1).to_pylist():
        return row["topic"], row["partition"], row["number_min"], row["number_max"]
    return None


def _listed(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers))
