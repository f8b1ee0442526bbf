"""The lane of an election while brokers acknowledge one after the other, and while its stream is away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from .conftest import Visit
from .held_cluster import HeldCluster, held_cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HeldCluster]:
    with held_cluster(tmp_path / "security") as running:
        yield running


@pytest.fixture
def visit(browser: Browser, cluster: HeldCluster) -> Iterator[Visit]:
    context = browser.new_context()
    yield Visit(context, cluster.url).log_in()
    context.close()


def failure_lane(visit: Visit) -> Locator:
    """Returns the lane of the failed broker, once it is there, by its event: later lanes do not replace it."""
    lane = visit.page.locator(".lane", has_text="(offline)").first
    expect(lane).to_be_visible()
    return visit.page.locator(f'.lane[data-event="{lane.get_attribute("data-event")}"]')


def expect_acknowledged(lane: Locator, count: int, *, of: int) -> None:
    expect(lane).to_contain_text(f"{count} of {of} brokers acknowledged")
    expect(lane.locator("svg .acked")).to_have_count(count)
    expect(lane.locator("svg .sent")).to_have_count(of)


def test_bars_grow_until_every_broker_has_acknowledged(visit: Visit, cluster: HeldCluster) -> None:
    visit.go("elections")
    cluster.hold(4, 5)

    led = cluster.kill(1)

    lane = failure_lane(visit)
    expect_acknowledged(lane, 2, of=4)
    expect(lane).to_contain_text(f"{led} leaders moved. – running")
    expect(lane.locator("svg.growing .span.commit")).to_have_count(1)
    assert lane.locator("[data-delay-ms]").count() == 0

    cluster.release(4)
    expect_acknowledged(lane, 3, of=4)
    expect(lane).to_contain_text("running")

    cluster.release(5)
    expect_acknowledged(lane, 4, of=4)
    expect(lane).to_contain_text("✓ complete")
    expect(lane.locator("svg.growing")).to_have_count(0)
    titles = lane.locator("svg .acked title").all_text_contents()
    assert [title.split()[:3] for title in titles] == [
        ["broker", str(broker), "acknowledged"] for broker in (2, 3, 4, 5)
    ]
    # The page measures how long after the last acknowledgement the lane was complete.
    shown = lane.locator("[data-delay-ms]")
    expect(shown).to_contain_text("ms after the last acknowledgement")
    assert int(shown.get_attribute("data-delay-ms") or -1) >= 0


def test_bars_grow_on_after_the_stream_was_away(visit: Visit, cluster: HeldCluster) -> None:
    page = visit.go("elections")
    cluster.hold(3, 4, 5)
    cluster.kill(1)
    lane = failure_lane(visit)
    expect_acknowledged(lane, 1, of=4)

    cluster.disconnect()
    expect(page.locator("#connection")).to_contain_text("cannot be reached")
    cluster.release(3)
    expect_acknowledged(lane, 1, of=4)
    cluster.connect()

    expect(page.locator("#connection")).to_contain_text("live")
    expect_acknowledged(lane, 2, of=4)
    expect(lane).to_contain_text("running")
    cluster.release(4)
    expect_acknowledged(lane, 3, of=4)
    cluster.disconnect()
    expect(page.locator("#connection")).to_contain_text("cannot be reached")
    cluster.release(5)
    cluster.wait_complete()
    cluster.connect()

    expect_acknowledged(lane, 4, of=4)
    expect(lane).to_contain_text("✓ complete")
    # It was complete before the page could show it, so there is nothing to measure.
    assert lane.locator("[data-delay-ms]").count() == 0
