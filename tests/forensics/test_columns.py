"""Declaration of columns: names, schema, headers, and units in a report."""

import pyarrow as pa
import pytest

from kactl.forensics.columns import KEY, KEY_COLUMNS, TYPES, Column, Unit, columns, names_of, pick, schema

COLUMNS = KEY_COLUMNS + columns(
    """
    lone_ms   ms   [one in sync] milliseconds
    # A comment.
    last_isr  ids  the last,
                   or none
    controller_epoch
    """
)


def test_text_declares_title_and_continued_description() -> None:
    assert COLUMNS[3] == Column("lone_ms", TYPES["ms"], "milliseconds", title="one in sync")
    assert COLUMNS[4] == Column("last_isr", TYPES["ids"], "the last, or none")
    assert COLUMNS[5].header == "epoch"


@pytest.mark.parametrize(("text", "error"), [("a ids", ValueError), ("a none a number", KeyError), ("a", KeyError)])
def test_text_without_columns_is_rejected(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        columns(text)


def test_schema_has_the_stored_types_in_order() -> None:
    assert names_of(COLUMNS) == [*KEY, "lone_ms", "last_isr", "controller_epoch"]
    assert schema(COLUMNS).field("life") == pa.field("life", pa.int32())
    assert schema(COLUMNS).field("lone_ms") == pa.field("lone_ms", pa.int64())


def test_header_is_the_title_or_the_name_with_blanks() -> None:
    assert [column.header for column in COLUMNS[3:5]] == ["one in sync", "last isr"]


def test_unit_follows_from_the_type() -> None:
    assert [column.unit for column in COLUMNS[2:5]] == [Unit.ID, Unit.DURATION, Unit.LIST]


def test_picked_columns_are_in_the_wanted_order() -> None:
    assert names_of(pick(COLUMNS, "last_isr", "topic")) == ["last_isr", "topic"]
    with pytest.raises(KeyError):
        pick(COLUMNS, "none")
