"""The documentation site: it builds without warnings, refers to no other host, and can be searched from a folder."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.conftest import PATIENCE_MS, browser
from tests.support.tree import ROOT

__all__ = ["browser"]

# Sphinx takes 20 s of processor time.
pytestmark = pytest.mark.slow

BUILD_S: Final = 600.0
# Elements that a browser fetches by itself, with the attributes that name them.
FETCHED: Final = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}
PHONE: Final = 390


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "docs.website", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder


class Fetched(HTMLParser):
    """Addresses that a browser fetches to show a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in FETCHED.get(tag, ()) and value]


def is_elsewhere(address: str) -> bool:
    return re.match(r"(?:[a-z]+:)?//", address.strip()) is not None


def addresses_in_styles(site: Path) -> Iterator[str]:
    for file in site.rglob("*.css"):
        text = file.read_text(encoding="utf-8")
        yield from re.findall(r"url\(\s*['\"]?([^'\")]+)", text)
        yield from re.findall(r"@import\s+['\"]([^'\"]+)", text)


def test_pages_fetch_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    addresses = [address for page in pages for address in Fetched(page).found]

    assert len(pages) > 50
    assert len(addresses) > len(pages)
    assert not [address for address in (*addresses, *addresses_in_styles(site)) if is_elsewhere(address)]


def test_every_local_file_that_a_page_fetches_exists(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in Fetched(page).found:
            path = address.split("?")[0].split("#")[0]
            if path and not path.startswith("data:"):
                assert (page.parent / path).exists(), f"{page.relative_to(site)}: {address}"


@pytest.mark.parametrize(
    "name",
    ["index", "tutorials/operate", "reference/cli", "reference/api", "compatibility", "state-machines", "architecture"],
)
def test_page_fits_a_phone_and_requests_only_files_of_the_site(site: Path, browser: Browser, name: str) -> None:
    page, requested, errors = visit(browser, width=PHONE)

    page.goto(f"{site.as_uri()}/{name}.html")

    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert not [url for url in requested if not url.startswith((site.as_uri(), "data:"))]
    assert errors == []
    page.context.close()


def test_search_works_from_a_folder(site: Path, browser: Browser) -> None:
    page, requested, errors = visit(browser, width=1200)

    page.goto(f"{site.as_uri()}/search.html?q=unclean.leader.election")
    page.wait_for_selector("#search-results .search a")

    assert page.locator("#search-results .search a").count() > 1
    assert not [url for url in requested if not url.startswith((site.as_uri(), "data:"))]
    assert errors == []
    page.context.close()


def visit(browser: Browser, *, width: int) -> tuple[Page, list[str], list[str]]:
    """Returns a new page, with lists of its requests and of its errors."""
    context = browser.new_context(viewport={"width": width, "height": 844})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    requested: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    return page, requested, errors
