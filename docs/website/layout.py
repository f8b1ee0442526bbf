"""Layout of the site: the pages from outside docs/, and generated pages with the files that links mean by them."""

from pathlib import PurePosixPath
from typing import Final

# Path in the tree -> place in the site. Pages of docs/ keep their path below docs/.
PAGES: Final = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/reporting.md",
    "bench/README.md": "how-to/benchmarks.md",
}
# Path in the tree -> generated page that has its place in the site.
SITE_PAGES: Final = {
    "docs/decisions": PurePosixPath("decisions/index.md"),
    "examples": PurePosixPath("how-to/examples.md"),
    "kactl/__init__.py": PurePosixPath("reference/python.md"),
    "kactl/cli/root.py": PurePosixPath("reference/cli.md"),
    "kactl/config/settings.py": PurePosixPath("reference/configuration.md"),
    "kactl/decide/messages/log.py": PurePosixPath("reference/events.md"),
    "tests/admin/openapi.json": PurePosixPath("reference/api.md"),
}
