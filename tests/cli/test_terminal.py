"""What a person at a terminal sees: colours, and a question before anything is moved."""

import os
import pty
import subprocess

from .server import KACTL, Up


def typed(up: Up, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal and type an answer: its exit code, and all that was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*KACTL, "--server", up.url, *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:  # how a terminal says that nobody is at its other end any more
                break
            if not read:
                break
            shown += read
        code = child.wait(30)
    os.close(ours)
    return code, shown.decode()


def test_a_person_is_asked_and_may_say_no(own_up: Up) -> None:
    own_up("topic", "create", "asked", "--assignment", "0:1,2", "--assignment", "1:2,1")
    own_up("broker", "kill", "1")
    own_up.until(lambda: not own_up.partitions("--leader", "1"), "others lead")
    own_up("broker", "restart", "1")
    own_up.until(lambda: not own_up.partitions("--urp"), "all are in sync")

    no, said_no = typed(own_up, "n\n", "elect", "preferred", "--all")
    after_no = len(own_up.partitions("--leader", "1"))
    yes, said_yes = typed(own_up, "y\n", "elect", "preferred", "--all")
    again, said_again = typed(own_up, "", "elect", "preferred", "--all")

    assert (no, after_no) == (6, 0)
    assert "would move" in said_no
    assert "not confirmed: nothing was changed" in said_no
    assert "\x1b[" in said_no
    assert (yes, len(own_up.partitions("--leader", "1"))) == (0, 1)
    assert "1 moved." in said_yes
    assert again == 0
    assert "No partition needs an election." in said_again
    assert "Continue?" not in said_again
