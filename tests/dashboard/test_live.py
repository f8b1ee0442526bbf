"""The dashboard while the cluster changes, and while its server is away."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.server import PATIENT, Up

from .conftest import Visit

pytestmark = pytest.mark.slow


@pytest.fixture
def own_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster that the test may stop."""
    server = Up(tmp_path_factory.mktemp("own"), env=PATIENT)
    server("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    yield server
    if server.process.alive:
        server.process.kill()


@pytest.fixture
def own_visit(browser: Browser, own_up: Up) -> Iterator[Visit]:
    context = browser.new_context()
    yield Visit(context, own_up.url).log_in()
    context.close()


def test_failure_of_a_broker_appears_with_its_course(own_visit: Visit, own_up: Up) -> None:
    page = own_visit.go("elections")
    led = [each for each in own_up.partitions() if each.leader == 2]

    own_up("broker", "kill", "2")

    lane = page.locator(".lane", has_text="BrokerChange").first
    expect(lane).to_contain_text(f"(offline) {len(led)} leaders moved. ✓ complete 2 of 2 brokers acknowledged")
    assert lane.locator("svg .span.commit").count() == 1
    assert lane.locator("svg .acked").count() == 2
    lane.locator("a").click()
    expect(page.locator("dl")).to_contain_text("BrokerChange")
    page = own_visit.go("now")
    expect(page.locator(".card.bad")).to_contain_text("Broker 2")
    expect(page.locator(".figure.bad")).to_contain_text("1")
    expect(page.locator("main")).to_contain_text("broker 2 failed")
    page = own_visit.go(f"partition/orders/{led[0].partition}")
    expect(page.locator("main")).to_contain_text("its broker is dead")


def test_page_resumes_when_its_server_returns(own_visit: Visit, own_up: Up) -> None:
    page = own_visit.go("now")
    expect(page.locator("#connection")).to_contain_text("live")
    own_up.process.kill()
    expect(page.locator("#connection")).to_contain_text("cannot be reached")

    own_up.start()
    own_up("topic", "create", "later", "--partitions", "1", "--replication-factor", "1")

    expect(page.locator("#connection")).to_contain_text("live")
    expect(page.locator("main")).to_contain_text("topic later created")
    expect(page.locator("#controller")).to_contain_text("epoch 2")
