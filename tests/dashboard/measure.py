"""Delay of the election path: from the last acknowledgement of a broker's failure to its complete lane on the page.

    python -m tests.dashboard.measure [RUNS]

A live cluster of five brokers, Debian's Chromium, and the page's own measure of each failure. The first failure is not
counted.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import expect, sync_playwright

from .conftest import PATIENCE_MS, Visit
from .held_cluster import held_cluster

_RUNS: Final = 20


def delays_ms(runs: int) -> list[int]:
    """Returns the delay of each failure but the first, in ascending order."""
    found: list[int] = []
    expect.set_options(timeout=PATIENCE_MS)
    with (
        tempfile.TemporaryDirectory() as folder,
        held_cluster(Path(folder)) as cluster,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False)
        page = Visit(browser.new_context(), cluster.url).log_in().go("elections")
        expect(page.locator("#connection")).to_contain_text("live")
        for run in range(runs + 1):
            cluster.kill(1)
            shown = page.locator(".lane", has_text="(offline)").locator("[data-delay-ms]")
            expect(shown).to_have_count(run + 1)
            if run:
                found.append(int(shown.first.get_attribute("data-delay-ms") or 0))
            cluster.restart(1)
        browser.close()
    return sorted(found)


def main() -> None:
    delays = delays_ms(int(sys.argv[1]) if len(sys.argv) > 1 else _RUNS)
    middle = delays[len(delays) // 2]
    print(f"{len(delays)} failures: {delays[0]} ms at least, {middle} ms at the median, {delays[-1]} ms at most")


if __name__ == "__main__":
    main()
