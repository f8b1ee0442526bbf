"""docs/limits.md lists the limits that the code has."""

import ast
import re
from functools import cache
from typing import Final

import pytest

from tests.support import limits_table, tree

# Constants with the names of limits on input.
LIMIT: Final = re.compile(
    r"_?(?:[A-Z]+_)*(?:BYTES|SIZE|LENGTH|ELEMENTS|CONNECTIONS|FIELDS|TAGS|ITERATIONS|ANSWER)(?:_PER_ADDRESS)?_MAX"
)
# By the end of their module's path and their name: limits that input does not reach, and why.
OTHERS: Final = {
    "runtime/escaping.TEXT_LENGTH_MAX": "of text in messages",
    "runtime/logs.LINE_LENGTH_MAX": "of lines that are written",
    "access/der._LENGTH_BYTES_MAX": "of one number within a certificate",
    "codec/primitive.UVARINT_SIZE_MAX": "of one number",
    "kafka/client.REQUEST_SIZE_MAX": "of requests that are sent",
    "listener/field_types.ELEMENTS_MAX": "for messages without a limit of their own, which no client sends",
    "stores/sqlite/database.LOG_BYTES_MAX": "of a file that is written",
    "stores/zookeeper/topic_node.NODE_BYTES_MAX": "of nodes that are written",
    "stores/etcd/topics.VALUE_BYTES_MAX": "of values that are written",
    "cli/doctor._ANSWER_MAX": "of a diagnosis, which cuts the answer",
}


def test_page_lists_the_limits_of_the_code() -> None:
    text = limits_table.PAGE.read_text(encoding="utf-8")
    assert limits_table.page(text) == text, "run: python -m tests.support.limits_table"


@cache
def listed_names() -> frozenset[str]:
    """Returns the constants that the page is made of, as `module.NAME` with the last part of the module's path."""
    parsed = ast.parse((tree.ROOT / "tests" / "support" / "limits_table.py").read_bytes())
    modules: dict[str, str] = {}
    names = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                names.add(f"{node.module}.{alias.name}")
    for node in ast.walk(parsed):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.add(f"{modules[node.value.id]}.{node.attr}")
    return frozenset(names)


def test_every_limit_on_input_is_listed() -> None:
    """S-78. The limits stay beside the decoders that apply them; none is forgotten."""
    found, missing = 0, []
    for path in tree_files():
        module = path.removesuffix(".py").removesuffix("/__init__")
        for name in constants_of(path):
            found += 1
            listed = f"{module.replace('/', '.')}.{name}" in listed_names()
            other = any(f"{module}.{name}".endswith(known) for known in OTHERS)
            if listed == other:
                missing.append(f"{module}.{name}: {'listed, and in OTHERS' if listed else 'not listed'}")
    assert found > 30
    assert missing == []


def test_exceptions_exist() -> None:
    present = {f"{path.removesuffix('.py')}.{name}" for path in tree_files() for name in constants_of(path)}

    assert [known for known in OTHERS if not any(name.endswith(known) for name in present)] == []


@cache
def tree_files() -> tuple[str, ...]:
    """Returns the modules of kactl, by their path as part of the package."""
    found = [
        (f"kactl/{path.relative_to(tree.ROOT)}" if folder != "kactl" else str(path.relative_to(tree.ROOT)))
        for folder in ("kactl", "actors", "transports")
        for path in sorted((tree.ROOT / folder).rglob("*.py"))
    ]
    return tuple(path for path in found if not path.startswith(("kactl/testing", "kactl/forensics/whatif")))


@cache
def constants_of(path: str) -> tuple[str, ...]:
    """Returns the constants of a module that are named like limits on input."""
    source = tree.ROOT / (path if (tree.ROOT / path).exists() else path.removeprefix("kactl/"))
    names = []
    for node in ast.parse(source.read_bytes()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and LIMIT.fullmatch(node.target.id):
            names.append(node.target.id)
    return tuple(names)


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (8190, "8 KiB"), (1 << 20, "1 MiB"), (100 << 20, "100 MiB")]
)
def test_sizes_are_rounded_to_their_unit(count: int, text: str) -> None:
    assert limits_table.size(count) == text
