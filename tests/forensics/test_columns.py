"""Declaration of columns: names, schema, headers, and units in a report."""

import pyarrow as pa
import pytest

from kactl.forensics.columns import IDS, KEY, KEY_COLUMNS, MS, Column, Unit, names_of, pick, schema

COLUMNS = (
    *KEY_COLUMNS,
    Column("lone_ms", MS, "milliseconds", title="one in sync"),
    Column("last_isr", IDS, "the last"),
)


def test_schema_has_the_stored_types_in_order() -> None:
    assert names_of(COLUMNS) == [*KEY, "lone_ms", "last_isr"]
    assert schema(COLUMNS).field("life") == pa.field("life", pa.int32())
    assert schema(COLUMNS).field("lone_ms") == pa.field("lone_ms", pa.int64())


def test_header_is_the_title_or_the_name_with_blanks() -> None:
    assert [column.header for column in COLUMNS[3:]] == ["one in sync", "last isr"]


def test_unit_follows_from_the_type() -> None:
    assert [column.unit for column in COLUMNS[2:]] == [Unit.ID, Unit.DURATION, Unit.LIST]


def test_picked_columns_are_in_the_wanted_order() -> None:
    assert names_of(pick(COLUMNS, "last_isr", "topic")) == ["last_isr", "topic"]
    with pytest.raises(KeyError):
        pick(COLUMNS, "none")
