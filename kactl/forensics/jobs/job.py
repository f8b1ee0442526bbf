"""Definition of a job: a name, a function of DataFrames, and the columns of its result."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kactl.forensics.columns import Column, schema


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        name: name of the job and of its table.
        description: description of its rows, in a sentence.
        columns: columns of the result, in this order.
        run: returns the result as a DataFrame. Its parameters are named after the tables that it needs: `events`,
            `files`, `levels`, or those of other jobs. Of many events it reads nothing; only `skew` and `absences` read
            at once, about one row for each broker. Of few events it may read, and keep, rows that it needs several
            times; see `tables.kept_if_small`.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    run: Callable[..., DataFrame]

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.run).parameters)

    @property
    def schema(self) -> pa.Schema:
        return schema(self.columns)

    @property
    def spark_schema(self) -> StructType:
        return from_arrow_schema(self.schema)

    def table(self, spark: SparkSession, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
        """Returns a few rows as a DataFrame of its schema."""
        arrays = {column.name: pa.array([row[column.name] for row in rows], column.type) for column in self.columns}
        return spark.createDataFrame(pa.table(arrays, schema=self.schema))
