"""Build the site: python -m docs.website FOLDER. Needs the packages of the extra `docs`."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from . import references
from .diagrams import BadDiagram
from .navigation import tables_of_contents
from .pages import BrokenLink, stage

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIGURATION: Final = Path(__file__).parent


def write_sources(folder: Path) -> None:
    """Write all pages of the site as Markdown: those of the tree, the generated ones, and the navigation.

    Raises:
        BrokenLink: a page has a link to a file that does not exist.
        BadDiagram: a page has a diagram that cannot be listed.
    """
    stage(ROOT, folder)
    generated = {
        "reference/cli.md": references.cli_page(),
        "reference/configuration.md": references.configuration_page(ROOT),
        "reference/api.md": references.api_page(),
        "reference/events.md": references.events_page(),
        "reference/python.md": references.python_page(),
        "how-to/examples.md": references.examples_page(ROOT),
        "decisions/index.md": references.decisions_page(ROOT),
    }
    for name, text in generated.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    start = folder / "index.md"
    start.write_text(f"{start.read_text(encoding='utf-8')}\n{tables_of_contents()}\n", encoding="utf-8")


def build(folder: Path) -> int:
    """Build the site. Returns the exit code of Sphinx: 0 if there was no warning."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch, "sources")
        sources.mkdir()
        write_sources(sources)
        command = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html", "-c", str(CONFIGURATION)]
        done = subprocess.run(
            [sys.executable, *command, "-d", str(Path(scratch, "doctrees")), str(sources), str(folder)], check=False
        )
    return done.returncode


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return build(Path(sys.argv[1]))
    except (BadDiagram, BrokenLink) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
