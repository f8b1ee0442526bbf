"""A real browser and a running cluster: Debian's `chromium`, driven by Playwright.

Without the program the tests are skipped with a one-line reason; with KACTL_REQUIRE_INTEROP=1 they fail instead.
"""

import os
import shutil
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.cli.server import Up
from tests.support.api_access import token_of
from tests.support.jars import REQUIRE

_MISSING: Final = "there is no Chromium: install Debian's chromium, or put chromium on PATH"
PATIENCE_MS: Final = 60_000
# Report of the browser about the one request that finds out whether a login is needed.
_EXPECTED: Final = "the server responded with a status of 401"


# Until its end Playwright runs an event loop in this thread, in which no other test can run its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        # Chromium cannot isolate its processes when root starts it.
        started = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.geteuid() != 0)
        yield started
        started.close()


class Visit:
    """A page of the dashboard in a browser of its own, logged in."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.errors: list[str] = []
        self.requested: list[str] = []
        context.set_default_timeout(PATIENCE_MS)
        self.page: Page = context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and _EXPECTED not in message.text:
            self.errors.append(message.text)

    def log_in(self, token: str | None = None) -> "Visit":
        """Log in with a token; with that of the server if it is None."""
        self.page.goto(self.url)
        self.page.fill("#token", token or token_of(self.url))
        self.page.click("#login button")
        self.page.wait_for_selector(".figures .figure")
        return self

    def go(self, place: str) -> Page:
        """Open a page by its address behind `#/`, and wait until it has content."""
        self.page.goto(f"{self.url}/#/{place}")
        self.page.wait_for_selector(f"main .page.{place.partition('/')[0].partition('?')[0]} > *")
        return self.page


@pytest.fixture
def visit(browser: Browser, up: Up) -> Iterator[Visit]:
    """The dashboard of the shared cluster. The page may not report an error."""
    context = browser.new_context()
    opened = Visit(context, up.url).log_in()
    yield opened
    context.close()
    assert opened.errors == []


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster of three brokers with two topics, which the tests of a file share."""
    server = Up(tmp_path_factory.mktemp("dashboard"))
    server("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    server("topic", "create", "single", "--assignment", "0:2")
    yield server
    server.close()
