"""Output files of a page: its text, and its pictures in a folder beside it."""

from pathlib import Path


class Parts:
    """Pictures of a page, in a folder named after it.

    Args:
        page: the file of the page.
    """

    def __init__(self, page: Path) -> None:
        self.page = page
        self.pictures: dict[Path, str] = {}

    def picture(self, name: str, description: str, svg: str) -> str:
        """Adds a picture to be written with the page. Returns the Markdown that shows it."""
        path = self.page.parent / self.page.stem / f"{name}.svg"
        self.pictures[path] = svg
        return f"![{description}]({path.relative_to(self.page.parent).as_posix()})"

    def write(self, text: str) -> None:
        """Writes the page and its pictures, and removes pictures that the page no longer has."""
        folder = self.page.parent / self.page.stem
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            if old not in self.pictures:
                old.unlink()
        for path, svg in self.pictures.items():
            path.write_text(svg, encoding="utf-8")
        self.page.write_text(text, encoding="utf-8")
