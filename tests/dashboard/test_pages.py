"""Pages of the dashboard in Chromium: content, actions, accessibility, and the limits of its policy."""

from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from kactl.admin import dashboard_files
from tests.cli.server import Up
from tests.support.api_access import token_of

from .conftest import Visit

pytestmark = pytest.mark.slow

PAGES = {
    "now": "Broker 2",
    "elections": "TopicChange",
    "partitions": "orders-5",
    "partition/orders/0": "absent → new",
    "brokers": "Broker 3",
    "broker/1": "Can it stop now?",
    "controller": "Controllers, the newest first",
    "elect": "Partitions, such as orders-0",
    "reassign": "No reassignment is in progress.",
    "whatif?kill=2": "If 2 fails, 1 partition of 1 topic has no leader",
    "machines": "its broker was sent the request to delete it",
    "audit": "create topic",
    "forensics": "It stays on this machine",
}


def test_dashboard_is_small_and_complete() -> None:
    files = dashboard_files.files()

    assert sum(len(file.content) for file in files.values()) < 200_000
    assert {"index.html", "main.js", "style.css", "uplot.js"} <= files.keys()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(browser: Browser, up: Up, scheme: str) -> None:
    context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    visit = Visit(context, up.url).log_in()
    found = {}
    for place, text in PAGES.items():
        page = visit.go(place)
        expect(page.locator("main")).to_contain_text(text)
        found[place] = [f"{each['id']}: {each['nodes'][0]['html']}" for each in Axe().run(page).response["violations"]]
    context.close()
    assert [each for each in found.items() if each[1]] == []
    assert visit.errors == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (3840, 2160)])
def test_pages_fit_the_width_of_the_screen(browser: Browser, up: Up, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height})
    visit = Visit(context, up.url).log_in()
    for place in PAGES:
        page = visit.go(place)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
    context.close()


def test_page_asks_its_own_server_only(visit: Visit) -> None:
    for place in PAGES:
        visit.go(place)

    assert {urlsplit(url).netloc for url in visit.requested} == {urlsplit(visit.url).netloc}


def test_wrong_token_is_rejected_in_words(browser: Browser, up: Up) -> None:
    context = browser.new_context()
    visit = Visit(context, up.url)
    visit.page.goto(up.url)
    visit.page.fill("#token", "kactl_aaaaaaaa_wrong")
    visit.page.click("#login button")

    expect(visit.page.locator("#login [role=alert]").last).to_contain_text("this server needs a valid token")
    assert visit.page.evaluate("sessionStorage.length") == 0
    context.close()


def test_logout_forgets_the_token(visit: Visit) -> None:
    assert visit.page.evaluate("sessionStorage.length") == 1
    visit.page.click("#logout")

    expect(visit.page.locator("#token")).to_be_visible()
    expect(visit.page.locator("#login [role=status]")).to_have_text("You have logged out.")
    assert visit.page.evaluate("sessionStorage.length") == 0


def test_page_keeps_no_token(visit: Visit) -> None:
    kept = visit.page.evaluate("JSON.stringify([sessionStorage, localStorage, document.cookie])")

    assert "kactlticket_" in kept
    assert token_of(visit.url) not in kept
    assert visit.page.context.cookies() == []


def test_address_of_the_command_logs_one_page_in(browser: Browser, up: Up) -> None:
    address = up("dashboard", "--print").out.strip()
    context = browser.new_context()
    visit = Visit(context, up.url)
    visit.page.goto(address)
    visit.page.wait_for_selector(".figures .figure")
    assert visit.page.url == f"{up.url}/#/now"
    assert not any("kactlcode" in url for url in visit.requested[1:])
    context.close()

    context = browser.new_context()
    second = Visit(context, up.url)
    second.page.goto(address)

    expect(second.page.locator("#login [role=status]")).to_contain_text("works once")
    context.close()


def test_page_says_that_its_login_has_ended(browser: Browser, up: Up) -> None:
    context = browser.new_context()
    visit = Visit(context, up.url).log_in()
    visit.page.evaluate("sessionStorage.setItem('kactl.credential', 'kactlticket_of.another')")
    visit.page.reload()

    expect(visit.page.locator("#login [role=status]")).to_contain_text("Your login has ended")
    assert visit.page.evaluate("sessionStorage.length") == 0
    context.close()


def test_list_of_partitions_is_filtered_by_its_address(visit: Visit) -> None:
    page = visit.go("partitions?topic=orders")
    expect(page.locator(".page > p[role=status]")).to_have_text("6 partitions")
    page.fill("input[name=topic]", "sing*")
    page.press("input[name=topic]", "Enter")

    expect(page.locator(".page > p[role=status]")).to_have_text("1 partition")
    assert page.url.endswith("#/partitions?topic=sing*")
    page.check("input[name=urp]")
    expect(page.locator(".page > p[role=status]")).to_have_text("No partition matches.")


def test_bad_filter_is_explained(visit: Visit) -> None:
    page = visit.go("partitions?leader=x")

    expect(page.locator(".failure")).to_contain_text("leader: 'x' is invalid")
    visit.errors.clear()  # the browser reports the response


def test_drain_shows_its_effect_before_it_is_done(visit: Visit, up: Up) -> None:
    page = visit.go("broker/1")
    page.click("text=Preview a drain")
    expect(page.locator("main")).to_contain_text("would have an ISR smaller by one")
    assert all(1 in each.isr for each in up.partitions("--topic", "orders"))

    page.fill("#reason", "replace a disk")
    page.click("button.act")
    expect(page.locator("main")).to_contain_text("Drained.")
    assert all(1 not in each.isr for each in up.partitions("--topic", "orders"))

    page.click("text=Preview its undoing")
    page.click("button.act")
    expect(page.locator("main")).to_contain_text("It may lead and follow again.")
    page = visit.go("audit")
    expect(page.locator("tr", has_text="replace a disk").first).to_contain_text("drain broker")
    up.until(lambda: all(len(each.isr) == 3 for each in up.partitions("--topic", "orders")), "all are in sync again")


def test_reassignment_is_planned_started_and_completed(visit: Visit, up: Up) -> None:
    page = visit.go("reassign")
    page.fill("#topics", "single")
    page.fill("#without", "2")
    page.click("text=Preview")
    expect(page.locator("main")).to_contain_text("1 partition would change, 1 replica would be copied")
    assert up.partitions("--topic", "single")[0].replicas == (2,)

    page.click("button.act")

    expect(page.locator("main")).to_contain_text("1 started, 0 rejected")
    expect(page.locator("main")).to_contain_text("the last one single-0")
    assert up.partitions("--topic", "single")[0].replicas != (2,)
    up("reassign", "plan", "--topic", "single")
    page = visit.go("whatif?kill=2")
    expect(page.locator("main")).to_contain_text("If 2 fails, every partition keeps a leader.")


def test_text_of_users_is_never_code(visit: Visit, up: Up) -> None:
    text = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    up("topic", "create", "hostile", "--partitions", "1", "--replication-factor", "1", "--reason", text)
    for place in ("now", "audit"):
        page = visit.go(place)
        expect(page.locator("main")).to_contain_text(text)
        assert page.title() != "owned"
        assert page.locator("main img, main script").count() == 0


def test_keyboard_reaches_every_page(visit: Visit) -> None:
    page = visit.go("now")
    page.reload()
    expect(page.locator("main .figure").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    links = page.locator("nav a")
    for number in range(links.count()):
        links.nth(number).focus()
        page.keyboard.press("Enter")
        expect(links.nth(number)).to_have_attribute("aria-current", "page")


def test_percentile_is_the_value_of_its_rank(visit: Visit) -> None:
    found = visit.page.evaluate(
        """async () => {
            const script = document.querySelector("script[type=module]").src;
            const { percentile } = await import(new URL("format.js", script));
            const hundred = Array.from({ length: 100 }, (_, index) => index + 1);
            return [[[1, 2], 0.5], [hundred, 0.99], [[7], 0.99], [[], 0.5]].map((each) => percentile(...each));
        }"""
    )

    assert found == [1, 99, 7, None]
