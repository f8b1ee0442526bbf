"""Corpus of scripts: bugs that were found once, and scenarios written by hand.

An entry is a script with the story of its bug. Each runs on every change and must pass. With its mutant, which brings
the bug back, it must fail with the recorded signature: an old bug stays findable.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from tests.sim.engine.script import FORMAT, Script, ScriptError, dumps

# Names of entries: an invariant with a number of four digits, or a scenario with the kind of its store.
_NAME: Final = re.compile(r"(?P<stem>(INV|LIV)-\d{2}|SCN-\d{2})(-(?P<rest>\d{4}|[a-z]+))?")


class CorpusError(ScriptError):
    """An entry cannot be used. The text names the file, the reason and the remedy."""


class Found(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How a bug was found.

    Attributes:
        commit: at which it was found.
        seed: of the script, if a seed made it.
        world: store and brokers, such as `memory/model`.
        date: as YYYY-MM-DD.
        cpu_s: processor time of one core until it was found; None if it was not measured.
    """

    commit: str
    world: str
    date: str
    cpu_s: float | None = None
    seed: int | None = None


class Entry(Script, forbid_unknown_fields=True, kw_only=True):
    """A script of the corpus.

    Attributes:
        sentence: the failure, or the subject of a scenario.
        found: how it was found; None for a scenario.
        broke: number of the invariant that it broke.
        signature: with which it fails while the mutant is on.
        mutant: number of the mutant that brings the bug back.
        fixed: commit that fixed it; empty while it is open.
    """

    sentence: str
    found: Found | None = None
    broke: str = ""
    signature: str = ""
    mutant: str = ""
    fixed: str = ""

    @property
    def script(self) -> Script:
        """The script alone, which a replay runs."""
        return Script(**{name: getattr(self, name) for name in Script.__struct_fields__})


def load(path: Path) -> Entry:
    """Read one entry.

    Raises:
        CorpusError: it is damaged, of another format, or incomplete.
        OSError: the file cannot be read.
    """
    try:
        head = msgspec.json.decode(path.read_bytes(), type=_Head)
        if head.format != FORMAT:
            raise CorpusError(
                f"{path}: script format {head.format}, but this version reads format {FORMAT}: make its runs equal "
                "again and raise its `format`, or remove the entry"
            )
        entry = msgspec.json.decode(path.read_bytes(), type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: not an entry of the corpus: {error}: restore the file, or remove it") from error
    if fault := _fault(entry, path.stem):
        raise CorpusError(f"{path}: {fault}")
    return entry


def load_all(folder: Path) -> list[Entry]:
    """Returns all entries of a folder, by name. Raises as `load`."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def load_script(path: Path) -> Script:
    """Returns the script of a file, which is a script or an entry of the corpus.

    Raises:
        ScriptError: it is neither, or of another format.
        OSError: the file cannot be read.
    """
    from tests.sim.engine.script import load as load_plain

    return load(path).script if _has_sentence(path) else load_plain(path)


def save(entry: Entry, folder: Path) -> Path:
    """Write an entry into a folder, under its name. Returns the file."""
    path = folder / f"{entry.name}.json"
    path.write_text(dumps(entry), encoding="utf-8")
    return path


def next_name(folder: Path, invariant: str) -> str:
    """Returns the name of the next entry for an invariant, such as `INV-49-0002`. Numbers are not used again."""
    taken = [int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{invariant}-[0-9][0-9][0-9][0-9].json")]
    return f"{invariant}-{max(taken, default=0) + 1:04}"


def _fault(entry: Entry, stem: str) -> str:
    """Returns the error of an entry with its remedy; empty if there is none."""
    match = _NAME.fullmatch(entry.name)
    if match is None or entry.name != stem:
        return (
            f"the name {entry.name!r} is not that of the file, or not one such as INV-49-0001 or SCN-16-memory: "
            "give both the same"
        )
    if not entry.sentence:
        return "there is no sentence: write what went wrong"
    if entry.expect != "pass":
        return f"it expects {entry.expect!r}: an entry is fixed and expects to pass; fix the bug first"
    if match["stem"].startswith("SCN"):
        return ""
    missing = [name for name in ("found", "broke", "signature", "mutant", "fixed") if not getattr(entry, name)]
    if missing:
        return f"there is no {', no '.join(missing)}: complete the entry"
    if not entry.signature.startswith(entry.broke) or match["stem"] != entry.broke:
        return f"name, `broke` {entry.broke!r} and signature {entry.signature!r} differ: name one invariant"
    return ""


class _Head(msgspec.Struct):
    format: int


class _Marked(msgspec.Struct):
    sentence: str | None = None


def _has_sentence(path: Path) -> bool:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Marked).sentence is not None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False  # `script.load` explains it
