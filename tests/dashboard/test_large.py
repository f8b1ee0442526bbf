"""A list of 100,000 partitions: the page reads, draws and keeps little more than the visible rows."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.server import Up

from .conftest import Visit

pytestmark = pytest.mark.slow

PARTITIONS = 100_000
ROW_PX = 30
WINDOW = 200
KEPT_MAX = 20
STEPS = 40


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster with two topics of the largest size."""
    server = Up(tmp_path_factory.mktemp("large"))
    for topic in ("first", "second"):
        server("topic", "create", topic, "--partitions", "50000", "--replication-factor", "1", "--timeout", "300")
    yield server
    server.close()


@pytest.fixture(scope="module")
def visited(browser: Browser, up: Up) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    visit = Visit(context, up.url).log_in()
    yield visit
    context.close()
    assert visit.errors == []


def windows(visit: Visit) -> list[int]:
    """Returns the positions of the windows that were requested so far; each has the size of a window."""
    queries = [parse_qs(urlsplit(url).query) for url in visit.requested if urlsplit(url).path == "/v1/partitions"]
    assert all(query["limit"] == [str(WINDOW)] for query in queries)
    return [int(query["offset"][0]) for query in queries]


def scroll(page: Page, row: int) -> None:
    page.locator(".virtual").evaluate("(element, top) => (element.scrollTop = top)", row * ROW_PX)


def drawn(page: Page) -> int:
    return page.locator(".virtual .shown .row").count()


def test_first_rows_need_one_window(visited: Visit) -> None:
    page = visited.go("partitions")
    expect(page.locator(".page > p[role=status]")).to_have_text("100,000 partitions")
    expect(page.locator(".shown .row").first).to_contain_text("first-0")

    assert windows(visited) == [0]
    assert drawn(page) < 60


def test_long_scroll_reads_and_keeps_what_is_visible(visited: Visit) -> None:
    page = visited.go("partitions")
    visited.requested.clear()
    for step in range(1, STEPS + 1):
        row = step * (PARTITIONS // STEPS) - 30
        scroll(page, row)
        topic, number = divmod(row, 50_000)
        name = f"{('first', 'second')[topic]}-{number + 5}"
        expect(page.locator(".shown").get_by_role("link", name=name, exact=True)).to_be_visible()
        assert drawn(page) < 60

    read = windows(visited)
    # At each step at most the two windows that are visible.
    assert STEPS <= len(read) <= 2 * STEPS + 2
    assert int(page.locator(".virtual").get_attribute("data-kept") or 0) <= KEPT_MAX
    scroll(page, PARTITIONS)
    expect(page.locator(".shown .row").last).to_contain_text("second-49999")


def test_change_of_the_cluster_reads_the_visible_rows_only(visited: Visit, up: Up) -> None:
    page = visited.go("partitions?topic=first")
    expect(page.locator(".page > p[role=status]")).to_have_text("50,000 partitions")
    scroll(page, 30_000)
    expect(page.locator(".shown").get_by_role("link", name="first-30005", exact=True)).to_be_visible()
    visited.requested.clear()

    up("broker", "kill", "2")

    expect(page.locator(".shown .state.bad").first).to_be_visible()
    read = windows(visited)
    assert set(read) <= {29_800, 30_000, 30_200}
    page.check("input[name=offline]")
    expect(page.locator(".page > p[role=status]")).not_to_have_text("50,000 partitions")
    assert page.url.endswith("#/partitions?topic=first&offline=true")
    expect(page.locator(".shown .row").first).to_contain_text("offline")
