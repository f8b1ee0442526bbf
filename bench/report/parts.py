"""What the page is put together of: text, and the pictures that stand beside it as files."""

from pathlib import Path


class Parts:
    """The pictures of a page; they lie in a folder named after it.

    Args:
        page: the file of the page.
    """

    def __init__(self, page: Path) -> None:
        self.page = page
        self.pictures: dict[Path, str] = {}

    def picture(self, name: str, says: str, svg: str) -> str:
        """Keep a picture to be written with the page; the words that put it there."""
        path = self.page.parent / self.page.stem / f"{name}.svg"
        self.pictures[path] = svg
        return f"![{says}]({path.relative_to(self.page.parent).as_posix()})"

    def write(self, text: str) -> None:
        """The page and its pictures; pictures of an earlier page that are not there any more are removed."""
        folder = self.page.parent / self.page.stem
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.svg"):
            if old not in self.pictures:
                old.unlink()
        for path, svg in self.pictures.items():
            path.write_text(svg, encoding="utf-8")
        self.page.write_text(text, encoding="utf-8")
