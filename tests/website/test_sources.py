"""Sources of the site: links for its layout, and references that contain all that the code declares."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import click
import pytest

import kactl
from docs.website.navigation import NAVIGATION
from docs.website.pages import BrokenLink, page_places, relinked
from docs.website.references import (
    api_page,
    cli_page,
    configuration_page,
    decisions_page,
    events_page,
    examples_page,
    python_page,
)
from docs.website.references.configuration import Undocumented
from docs.website.references.docstrings import markdown, parsed
from kactl.admin.routes.route_table import ROUTES
from kactl.cli.root import kactl as root_command
from tests.support.tree import ROOT

PLACES = page_places(ROOT)


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    generated = {"how-to/examples", "decisions/index"}
    listed = [page for group in NAVIGATION for page in group.pages]
    pages = {str(place.with_suffix("")) for place in PLACES.values() if place.suffix == ".md"}

    assert len(listed) == len(set(listed))
    expected = {page for page in pages if not page.startswith("decisions/")} - {"index"}
    assert {page for page in listed if not page.startswith("reference/")} - generated == expected


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](security.md#files)", "[a](security.md#files)"),
        ("[a](#here)", "[a](#here)"),
        ("[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("[a](../SECURITY.md)", "[a](project/reporting.md)"),
        ("![a picture](images/dashboard-now.png)", "![a picture](images/dashboard-now.png)"),
        ("[a](decisions/)", "[a](decisions/index.md)"),
        ("[the code](../kactl/model/__init__.py)", "the code (`kactl/model/__init__.py`)"),
        ("[`kactl/model/__init__.py`](../kactl/model/__init__.py)", "`kactl/model/__init__.py`"),
        ("[two\nlines](../CHANGELOG.md)", "[two\nlines](project/changelog.md)"),
        ("```text\n[a](../SECURITY.md)\n```", "```text\n[a](../SECURITY.md)\n```"),
    ],
)
def test_links_lead_to_the_places_of_their_targets(link: str, expected: str) -> None:
    assert relinked(link, PurePosixPath("docs/operating.md"), PLACES, ROOT) == expected


def test_links_of_pages_in_folders_are_relative_to_their_place() -> None:
    assert relinked("[a](docs/operating.md)", PurePosixPath("SECURITY.md"), PLACES, ROOT) == "[a](../operating.md)"
    assert relinked("[a](../README.md)", PurePosixPath("bench/README.md"), PLACES, ROOT) == "a (`README.md`)"


def test_link_to_a_missing_file_is_an_error() -> None:
    with pytest.raises(BrokenLink, match=r"docs/operating\.md: there is no docs/gone\.md"):
        relinked("[a](gone.md)", PurePosixPath("docs/operating.md"), PLACES, ROOT)


def test_cli_reference_has_every_command_with_its_options() -> None:
    page = cli_page()

    for path, command in _commands(root_command, "kactl"):
        assert f"\n## {path}\n" in page or path == "kactl", path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[-1] in page


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            if not below.hidden:
                yield from _commands(below, f"{path} {name}")


def test_api_reference_has_every_route_with_its_role() -> None:
    page = api_page()

    for route in ROUTES:
        assert f"### `{route.method} {route.path}`\n\n" in page
        assert f"{route.summary}. Role: {route.role.label}." in page.replace("\\", "")


def test_configuration_reference_has_types_defaults_and_variables() -> None:
    page = configuration_page(ROOT)

    assert re.search(r'^\| `session-timeout` \| Time without contact .* \| duration \| `"3s"` \|$', page, re.MULTILINE)
    assert "In the environment: `KACTL_STORE__...`, such as `KACTL_STORE__KIND`." in page
    assert "](../operating.md#takeover-and-handback)" in page


def test_key_without_documentation_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    (tmp_path / "docs" / "operating.md").write_text(text.replace("| `sticky` |", "| `stuck` |"), encoding="utf-8")

    with pytest.raises(Undocumented, match=r"does not explain \[store\]sticky"):
        configuration_page(tmp_path)


def test_events_reference_has_kinds_causes_and_triggers() -> None:
    page = events_page()

    for kind in ("controller", "broker", "topic", "partition", "replica", "handler", "request", "election", "reset"):
        assert f"\n## `{kind}`\n" in page
    assert "| `trigger` | str | kind of that event, such as BrokerChange. |" in page
    assert "| `BrokerChange` |" in page


def test_python_reference_has_every_public_name() -> None:
    page = python_page()

    for name in kactl.__all__:
        assert f"\n### {name}\n" in page
    assert "#### Controller.create_topic()" in page
    assert "async def create_topic(\n    topic: str,\n    *,\n    partitions: int | None = None,\n" in page


def test_decisions_and_examples_are_listed() -> None:
    decisions, examples = decisions_page(ROOT), examples_page(ROOT)

    for file in (ROOT / "docs" / "decisions").glob("*.md"):
        assert f"]({file.name})" in decisions
    for file in (ROOT / "examples").glob("*.py"):
        assert f"\n## `{file.name}`\n" in examples
        assert file.read_text(encoding="utf-8").splitlines()[-1] in examples


def documented() -> None:
    """Return rows, *in order*.

    A table follows:

        a | b

    Args:
        first, second: the `a*b`
            and more.

    Raises:
        KeyError: there is <none>.

    Source: Kafka.
    """


def test_docstrings_become_markdown() -> None:
    assert markdown(documented) == (
        "Return rows, \\*in order\\*.\n\nA table follows:\n\n```text\na | b\n```\n\n"
        "**Arguments**\n\n* `first, second`: the `a*b` and more.\n\n"
        "**Raises**\n\n* `KeyError`: there is \\<none>.\n\n**Source:** Kafka."
    )
    assert parsed(documented).entries("Args") == {"first": "the `a*b` and more.", "second": "the `a*b` and more."}
