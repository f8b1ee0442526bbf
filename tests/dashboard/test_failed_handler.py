"""The first screen of the dashboard shows the reason of a handler that cannot lead, as text."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.failed_handler import SHOWN, failed_handler

from .conftest import Visit

pytestmark = pytest.mark.slow


def test_first_screen_shows_the_reason_of_a_failed_handler(browser: Browser, tmp_path: Path) -> None:
    with failed_handler(tmp_path / "security") as url:
        context = browser.new_context()
        page = Visit(context, url).log_in().go("now")

        expect(page.locator(".checks")).to_contain_text(SHOWN)
        expect(page.locator(".checks")).to_contain_text("correct the handler")
        assert page.locator("#owned").count() == 0
        context.close()
