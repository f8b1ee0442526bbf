"""Definition of a job: a name, a function of DataFrames, and the columns of its result."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..events import Column

INT: Final = pa.int32()
LONG: Final = pa.int64()
REAL: Final = pa.float64()
TEXT: Final = pa.string()
BOOL: Final = pa.bool_()
TIME: Final = pa.timestamp("us", "UTC")
DATE: Final = pa.date32()
IDS: Final = pa.list_(pa.field("element", pa.int32()))
TEXTS: Final = pa.list_(pa.field("element", pa.string()))


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        name: name of the job and of its table.
        description: description of its rows, in a sentence.
        needs: the tables that `run` takes, in this order: `events`, `files`, `levels`, or those of other jobs.
        columns: columns of the result, in this order.
        run: returns the result as a DataFrame, without reading anything. Only `skew` and `absences` read at once, about
            one row for each broker.
    """

    name: str
    description: str
    needs: tuple[str, ...]
    columns: tuple[Column, ...]
    run: Callable[..., DataFrame]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def spark_schema(self) -> StructType:
        return from_arrow_schema(self.schema)

    def table(self, spark: SparkSession, rows: Sequence[Mapping[str, Any]], *more: Column) -> DataFrame:
        """Returns a few rows as a DataFrame of its schema, with the columns `more` appended."""
        schema = pa.schema([*self.schema, *(pa.field(column.name, column.type) for column in more)])
        columns = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in schema}
        return spark.createDataFrame(pa.table(columns, schema=schema))
