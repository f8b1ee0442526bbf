"""Names of files, topics and hosts reach no output with characters that a terminal obeys or that mislead a reader."""

from pathlib import Path
from typing import Final

import click
import msgspec
import pytest

from kactl.cli import output
from kactl.cli.common_options import Settings
from kactl.cli.exits import Failure
from kactl.model.errors import BadConfig, NotFound

from .server import kactl

# An escape sequence that sets the title, a bell, a single C1 control, DEL, and a mark that reverses the direction.
NAME: Final = "a\x1b]0;owned\x07b\x9b2Jc\x7f\u202egol.txt"
LINE: Final = (
    "[2024-03-05 08:00:00,000] INFO [Controller id=1 epoch=2] Changed partition orders-0 from NewPartition to "
    "OnlinePartition with state LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0) "
    "(state.change.logger)\n"
)


def check(text: str) -> None:
    assert text
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.java
@pytest.mark.slow
def test_names_of_log_files_are_harmless_in_every_output(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / f"{NAME}.log").write_text(LINE)
    out = tmp_path / "out"

    ingested = kactl("forensics", "ingest", tmp_path / NAME, "--out", out)
    pages = ("--html", tmp_path / "page.html", "--markdown", tmp_path / "page.md")
    report = kactl("forensics", "report", "--dir", out, *pages)
    queries = [
        kactl("forensics", "sql", "SELECT * FROM files", "--dir", out, "-o", form)
        for form in ("table", "csv", "json", "jsonl", "yaml")
    ]

    assert (ingested.code, report.code, {query.code for query in queries}) == (0, 0, {0})
    for text in (ingested.out, ingested.err, report.err, *(query.out for query in queries)):
        check(text.replace("\t", ""))
    for page in ("page.html", "page.md"):
        check((tmp_path / page).read_text())
        assert "owned" in (tmp_path / page).read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("forensics", "report", NAME),
        ("config", "validate", NAME),
        ("config", "show", NAME),
        ("reassign", "apply", "-f", NAME),
        ("topic", "describe", NAME),
        ("describe", "partition", NAME),
        ("elect", NAME),
        (NAME,),
        ("get", NAME),
        ("--server", f"http://{NAME}", "status"),
        ("store", "backup", NAME, "--store", NAME),
        ("compat", "topics", "--describe", "--topic", NAME),
        ("compat", "reassign-partitions", "--execute", "--reassignment-json-file", NAME),
        ("compat", "topics", NAME),
        ("monitoring", "export", f"/nowhere\0/{NAME}"),
    ],
    ids=lambda command: " ".join(command[:2]).replace(NAME, "NAME").replace("\0", ""),
)
@pytest.mark.parametrize("form", [(), ("-o", "json")], ids=["text", "json"])
def test_names_in_errors_are_harmless(command: tuple[str, ...], form: tuple[str, ...]) -> None:
    own = () if "compat" in command else form
    result = (
        kactl("--server", "http://127.0.0.1:9", *own, *command) if command[0] != "--server" else kactl(*own, *command)
    )

    assert result.code
    check(result.err or result.out)


def test_errors_of_the_library_are_harmless() -> None:
    for error in (BadConfig(NAME, f"{NAME} is wrong"), NotFound("topic", NAME)):
        check(str(error))
        assert "owned" in str(error)


def test_colours_of_a_table_stay_and_those_of_a_name_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("x"), color=True).scope():
        output.print_lines(output.table(("NAME",), [(("\x1b[31mred\x1b[0m", output.GOOD),), (NAME,)]))
        output.print_lines(output.pairs([(NAME, NAME)]))
        Settings().note(NAME)

    printed = capsys.readouterr()
    assert "\x1b[32m\ufffd[31mred\ufffd[0m\x1b[0m" in printed.out
    for text in (printed.out, printed.err):
        assert not set("\x07\x9b\x7f\u202e") & set(text)
        assert "\x1b]" not in text


def test_documents_have_the_name_in_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    for form in output.DATA:
        output.print_data(form, {"name": NAME}, [{"name": NAME}])
        printed = capsys.readouterr().out
        check(printed)
        if form != "yaml":
            assert msgspec.json.decode(printed) == {"name": NAME}


def test_failure_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    Failure(f"{NAME}\nsecond line").show()
    Failure(NAME).show_json()

    check(capsys.readouterr().err)
