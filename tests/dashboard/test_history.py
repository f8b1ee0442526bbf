"""Events of the past: history of a partition, state machines, audit trail, and reports about other clusters."""

import re
import socket
from pathlib import Path

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from kactl.admin.schema import StateMachines
from kactl.forensics.report.facts import Report
from kactl.forensics.report.make import describe
from kactl.forensics.report.page import page as html_of
from kactl.forensics.wording import Moments
from tests.cli.server import Up
from tests.forensics.jobs.tables import moment
from tests.forensics.report.builders import absence, bar, incident, night, partition
from tests.support.api_access import token_of

from .conftest import Visit

pytestmark = pytest.mark.slow
UTC = Moments("UTC")


def machines_of(visit: Visit) -> StateMachines:
    """Returns the counts of the server, over a whole day."""
    token = token_of(visit.url)
    answer = visit.page.request.get(
        f"{visit.url}/v1/state-machines?window_s=86400", headers={"Authorization": f"Bearer {token}"}
    )
    return msgspec.json.decode(answer.body(), type=StateMachines)


def test_diagrams_show_what_the_tables_define(visit: Visit) -> None:
    page = visit.go("machines?window=86400")
    expect(page.locator(".diagram")).to_have_count(2)
    found = machines_of(visit)

    for diagram, machine in zip(page.locator(".diagram").all(), (found.partition, found.replica), strict=True):
        states = [each.get_attribute("data-state") for each in diagram.locator(".node").all()]
        edges = [each.get_attribute("data-edge") for each in diagram.locator(".edge").all()]
        assert states == [state.name for state in machine.states]
        assert edges == [f"{each.from_state}-{each.to_state}" for each in machine.transitions]
    online = next(state.count for state in found.partition.states if state.name == "online")
    expect(page.locator(".diagram").first.locator("[data-state=online] .held")).to_have_text(str(online))
    expect(page.locator(".diagram").first.locator("[data-edge=new-online]")).to_have_class(re.compile("busy"))


def test_counts_of_states_are_live(visit: Visit, up: Up) -> None:
    page = visit.go("machines")
    held = page.locator(".diagram").first.locator("[data-state=online] .held")
    before = int(held.text_content() or 0)

    up("topic", "create", "counted", "--partitions", "3", "--replication-factor", "1")

    expect(held).to_have_text(str(before + 3))


def test_history_shows_states_with_their_causes(visit: Visit, up: Up) -> None:
    up("broker", "kill", "3")
    up("broker", "restart", "3")
    up.until(lambda: all(len(each.isr) == 3 for each in up.partitions("--topic", "orders")), "all are in sync again")
    page = visit.go("partition/orders/1")
    lanes = page.locator(".timeline .name")

    expect(lanes).to_have_text(["state", "broker 2", "broker 3", "broker 1"])
    expect(page.locator(".timeline .span.bad title").first).to_contain_text("broker 3 offline")
    row = page.locator("tr", has_text="replica on 3: online → offline")
    expect(row.locator("td").last).to_contain_text("BrokerChange")
    link = page.locator("tr", has_text="new → online; leader").locator("a")
    link.click()
    expect(page.locator("h1")).to_have_text("Election path")
    expect(page.locator("dl")).to_contain_text("TopicChange")


def test_stretch_of_the_history_is_in_the_address(visit: Visit) -> None:
    page = visit.go("partition/orders/0")
    page.select_option("select[name=span]", "1h")

    expect(page.locator(".timeline")).to_have_attribute("aria-label", re.compile("orders-0 over 1 h 0 min"))
    assert page.url.endswith("#/partition/orders/0?span=1h")


def test_earlier_state_is_shown_or_explained(visit: Visit) -> None:
    page = visit.go("partition/orders/0?at=2020-01-01T00:00:00Z")

    expect(page.locator(".failure")).to_contain_text("2020-01-01T00:00:00.000Z")
    visit.errors.clear()  # the browser reports the response


def test_audit_shows_denied_requests_and_their_clients(browser: Browser, visit: Visit) -> None:
    answer = visit.page.request.post(
        f"{visit.url}/v1/elections",
        headers={"Authorization": "Bearer kactl_aaaaaaaa_wrong"},
        data={"type": "preferred"},
    )
    assert answer.status == 401
    page = visit.go("audit")
    row = page.locator("tr", has_text="/v1/elections").first
    expect(row).to_contain_text("denied")

    page.select_option("select[name=result]", "denied")

    expect(page.locator("tbody tr", has_text="create topic")).to_have_count(0)
    expect(page.locator("tr", has_text="/v1/elections").first).to_contain_text("127.0.0.1")


def test_viewer_sees_changes_without_the_audit_trail(browser: Browser, up: Up, tmp_path: Path) -> None:
    file = tmp_path / "token"
    up("token", "create", "watcher", "--role", "viewer", "--expires", "1d", "--output", str(file))
    context = browser.new_context()
    other = Visit(context, up.url)
    other.page.goto(other.url)
    other.page.fill("#token", file.read_text().strip())
    other.page.click("#login button")
    other.page.wait_for_selector(".figures .figure")
    page = other.go("audit")

    expect(page.locator("main")).to_contain_text("Your role may not read the audit trail")
    expect(page.locator("tr", has_text="orders").first).to_contain_text("create topic")
    context.close()


def report() -> Report:
    """Returns a report about an incident of two partitions and a broker."""
    bars = partition(0, bar(0, 60)), partition(7, bar(10, 40, begin_kind="inferred"))
    away = absence(1, last_sign_at=moment(0), detected_at=moment(2), back_at=moment(80))
    return describe(night(incidents=(incident(*bars),), absences=(away,)), UTC)


def test_html_report_is_shown_without_running_or_loading(visit: Visit, tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    hostile = (
        "<script>top.document.title='owned'</script>"
        f"<img src='{address}/a.png' onerror=\"top.document.title='owned'\">"
        f"<style>body {{ background: url({address}/b.png) }} code {{ color: #123456 }}</style>"
        f"<meta http-equiv='refresh' content='0; url={address}/'><link rel='prefetch' href='{address}/c'>"
        f"<p id='last'><a href='{address}/d'>end of it</a></p></body>"
    )
    file = tmp_path / "report.html"
    file.write_text(html_of(report(), UTC).replace("</body>", hostile))
    page = visit.go("forensics")
    page.set_input_files("#report", file)
    frame = page.frame_locator("iframe.report")

    expect(frame.locator("h1")).to_contain_text("had no leader")
    expect(frame.locator("#last")).to_have_text("end of it")
    colour = frame.locator("footer code").first.evaluate("element => getComputedStyle(element).color")
    assert colour == "rgb(18, 52, 86)"  # it has its styles
    frame.locator("#last a").click()
    assert page.title() == "Forensics – kactl"
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()
    visit.errors.clear()  # the browser reports requests that the policy has blocked


def test_json_report_has_timelines_and_percentiles(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(report()))
    page = visit.go("forensics")
    page.set_input_files("#report", file)

    expect(page.locator(".timeline .name")).to_have_text(["broker 1 away", "orders-0", "orders-7"])
    expect(page.locator(".timeline .span.bad")).to_have_count(1)
    expect(page.locator(".timeline .span.bad title")).to_contain_text("broker-failure (observed, observed)")
    expect(page.locator("main")).to_contain_text("One outage, and its parts")
    assert Axe().run(page).response["violations"] == []


def test_other_files_are_rejected_in_words(visit: Visit, tmp_path: Path) -> None:
    page = visit.go("forensics")
    for content, reason in (
        ("{", "is not JSON"),
        ("{}", "is not a report of kactl"),
        ("<p>something else</p>", "is not a report of kactl"),
        ("", "is not a report of kactl"),
    ):
        file = tmp_path / f"other{len(content)}.html"
        file.write_text(content)
        page.set_input_files("#report", file)
        expect(page.locator(".failure")).to_contain_text(f"{file.name} {reason}")
