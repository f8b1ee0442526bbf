"""What a job is: a name, a function of DataFrames, and what its rows say."""

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
        name: of the job and of its table.
        says: what its rows tell, in a sentence.
        needs: the tables that `run` takes, in this order: `events`, `files`, `levels`, or other jobs'.
        columns: of what it returns, in this order.
        run: DataFrames in, a DataFrame out. It reads nothing before something is asked of what it returns; only `skew`
            and `absences` ask at once, for what is a row to a broker or so.
    """

    name: str
    says: str
    needs: tuple[str, ...]
    columns: tuple[Column, ...]
    run: Callable[..., DataFrame]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type) for each in self.columns])

    @property
    def spark_schema(self) -> StructType:
        return from_arrow_schema(self.schema)

    def table(self, spark: SparkSession, rows: Sequence[Mapping[str, Any]], *more: Column) -> DataFrame:
        """A few rows, as what it returns; with further columns behind."""
        schema = pa.schema([*self.schema, *(pa.field(each.name, each.type) for each in more)])
        columns = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in schema}
        return spark.createDataFrame(pa.table(columns, schema=schema))
