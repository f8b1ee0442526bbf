"""Pages with a drained broker and a held instance, as operators ordered them."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cli.server import PATIENT, Up

from .conftest import Visit

pytestmark = pytest.mark.slow

ORDER = re.compile(r"by \S+, since \d{4}-\d\d-\d\dT[^:]+:\d\d:\d\d")


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster with a drained broker, whose only instance is held and the controller nevertheless."""
    server = Up(tmp_path_factory.mktemp("ordered"), env=PATIENT)
    server("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    server("broker", "drain", "2", "--until", "2h", "--reason", "a new disk", "--yes")
    resigned = server("controller", "resign", "--hold", "--reason", "a new kernel", "--yes")
    assert resigned.code == 0, resigned.err
    server.until(lambda: server.is_ready() and server.epoch() > 1, "the only instance is the controller again")
    yield server
    server.close()


@pytest.fixture(params=[1440, 390])
def page_of(request: pytest.FixtureRequest, browser: Browser, ordered: Up) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": request.param, "height": 900})
    opened = Visit(context, ordered.url).log_in()
    yield opened
    context.close()
    assert opened.errors == []


def check_width(page: Page) -> None:
    """Nothing reaches beyond the window: tables scroll by themselves."""
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_drained_broker_is_shown_with_its_order(page_of: Visit) -> None:
    page = page_of.go("brokers")
    expect(page.locator("main tr", has_text="drained")).to_have_count(1)
    check_width(page)

    page = page_of.go("broker/2")
    shown = page.locator("dl")
    expect(shown).to_contain_text(ORDER)
    expect(shown).to_contain_text(": a new disk")
    check_width(page)


def test_held_instance_is_shown_with_its_order_and_its_end(page_of: Visit) -> None:
    page = page_of.go("controller")

    held = page.locator("main p", has_text="Instance 0 is held")
    expect(held).to_contain_text(ORDER)
    expect(held).to_contain_text(": a new kernel. It leaves the controllership to others")
    expect(held.locator("code")).to_have_text("kactl controller release 0")
    check_width(page)


def test_checks_on_the_first_page_name_both_orders(page_of: Visit) -> None:
    page = page_of.go("now")

    for told in ("broker 2 is drained by", "instance 0 is held by"):
        expect(page.locator("main")).to_contain_text(told)
    check_width(page)
