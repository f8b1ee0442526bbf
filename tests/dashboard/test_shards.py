"""The dashboard speaks of owners and shards where a topic is of the kind ownership."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.served_shards import POISONED, served_shards

from .conftest import Visit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def visit(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    with served_shards(tmp_path_factory.mktemp("security") / "folder") as url:
        context = browser.new_context()
        opened = Visit(context, url).log_in()
        yield opened
        context.close()
        assert opened.errors == []


def test_first_screen_counts_shards_without_an_owner(visit: Visit) -> None:
    page = visit.go("now")

    expect(page.locator(".figures")).to_contain_text("shards without an owner")
    expect(page.locator(".checks")).to_contain_text("no participant offers idle")
    expect(page.locator(".cards")).to_contain_text("shards")
    expect(page.locator(".cards")).to_contain_text("Broker 40000 (worker-a)")


def test_list_of_shards_is_filtered_by_state(visit: Visit) -> None:
    page = visit.go("shards?topic=idle")
    expect(page.locator(".page > p[role=status]")).to_have_text("2 shards")

    page.select_option("select[name=shard]", "owned")

    expect(page.locator(".page > p[role=status]")).to_have_text("No shard matches.")
    assert page.url.endswith("#/shards?topic=idle&shard=owned")
    page = visit.go("partitions")
    expect(page.locator(".page > p[role=status]")).to_have_text("1 partition")


def test_page_of_a_shard_explains_its_owner(visit: Visit) -> None:
    page = visit.go("partition/jobs/0")
    expect(page.locator("main")).to_contain_text("of the 6 shards of jobs")
    expect(page.locator("table").first).to_contain_text("standby: takes over first")
    expect(page.locator("main")).not_to_contain_text("min.insync.replicas")

    page = visit.go(f"partition/{POISONED.replace('-', '/')}")
    expect(page.locator("main")).to_contain_text("its database is away")


def test_failures_and_drains_are_previewed_for_shards(visit: Visit) -> None:
    page = visit.go("whatif?kill=1")
    expect(page.locator("main")).to_contain_text("as long as one participant lives that offers its topic")

    page = visit.go("broker/2")
    expect(page.locator("main")).to_contain_text("standby of")
    page.get_by_role("button", name="Preview a drain").click()
    expect(page.locator("main")).to_contain_text("handed over to other participants")
