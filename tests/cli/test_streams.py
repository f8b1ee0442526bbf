"""Commands whose standard streams are closed, or cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

from .server import KACTL

# A file that is opened by a program without streams would get the number of one of them.
CLOSED = """
import os, sys
from kactl.cli.main import _open_standard_streams
for number in (0, 2):
    os.close(number)
_open_standard_streams()
print(*[os.readlink(f"/proc/self/fd/{number}") for number in (0, 2)])
print(os.open(sys.argv[1], os.O_RDONLY) > 2)
"""


def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*KACTL, "config", "schema"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )

    assert done.returncode == 1
    assert done.stderr == (
        "error: the output cannot be written (No space left on device): name another file, or free space\n"
    )


def test_data_folder_whose_name_cannot_be_printed_is_refused() -> None:
    name = b"not utf-8 \xff"

    done = subprocess.run([*KACTL, "up", "--data-dir", name], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr == (
        r"error: --data-dir: the name 'not utf-8 \udcff' cannot be printed: choose another folder with "
        "--data-dir\n"
    )
    assert not os.path.exists(name)


def test_closed_streams_are_not_given_to_files() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, __file__], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == [os.devnull, os.devnull, "True"]
