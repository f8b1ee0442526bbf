"""Documentation pages are current: generated diagrams, gapless numbers, and all configuration keys."""

import json
import re
from collections.abc import Iterator

import msgspec

from kactl.config.settings import Config
from tests.support.diagrams import PAGE, state_machine_page
from tests.support.tree import ROOT

DOCS = ROOT / "docs"
# Numbers of Kafka's flaws that kactl fixes; the others have no line.
FLAWS_FIXED = [*range(1, 10), 14, 15, 16, *range(19, 26), 27, 30]


def test_diagrams_are_generated_from_the_tables() -> None:
    assert PAGE.read_text() == state_machine_page(), "write it anew: python -m tests.support.diagrams"


def test_differences_have_no_gap_and_cover_all_fixed_flaws() -> None:
    rows = re.findall(r"^\| ([DQ])(\d+) \|(.*)\|$", (DOCS / "differences.md").read_text(), re.MULTILINE)
    numbers = {kind: [int(number) for each, number, _ in rows if each == kind] for kind in "DQ"}

    assert numbers["D"] == list(range(1, len(numbers["D"]) + 1))
    assert numbers["Q"] == FLAWS_FIXED
    for kind, number, said in rows:
        parts = [part.strip() for part in said.split(" | ")]
        assert len(parts) == 3, f"{kind}{number} does not say Kafka's way, ours, and the reason"
        assert all(parts), f"{kind}{number} leaves something unsaid"


def test_decisions_have_no_gap_and_a_matching_heading() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))

    assert [int(each.name[:4]) for each in pages] == list(range(1, len(pages) + 1))
    for number, each in enumerate(pages, 1):
        assert each.read_text().startswith(f"# {number}. ")


def test_every_configuration_key_is_documented_with_its_default() -> None:
    text = (DOCS / "operating.md").read_text()
    told: dict[str, str] = {}
    section = ""
    for name, default in re.findall(r"^\| (?:\*\*)?`([^`]+)`(?:\*\*)? \| ([^|]*)\|", text, re.MULTILINE):
        section = name if name.startswith("[") else section
        told[f"{section}{name}" if name != section else name] = default.strip()

    for key, default in _keys().items():
        assert key in told, f"docs/operating.md does not explain {key}"
        if told[key].startswith("`") and default is not None:
            assert told[key] == f"`{default}`"


def _keys() -> dict[str, str | None]:
    """Returns each key with its section, and its default as written; None for defaults that this test does not
    check."""
    return dict(_keys_of(Config, ""))


def _keys_of(section: type[msgspec.Struct], name: str) -> Iterator[tuple[str, str | None]]:
    for field in msgspec.structs.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _keys_of(field.type, f"{name}.{field.encode_name}".removeprefix("."))
        else:
            yield f"[{name}]{field.encode_name}" if name else field.encode_name, _written(field.default)


def _written(default: object) -> str | None:
    match default:
        case bool():
            return str(default).lower()
        case str():
            return f'"{default}"'
        case tuple():
            return json.dumps(list(default))
        case int() if type(default) is int:
            return str(default)
    return None
