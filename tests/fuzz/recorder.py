"""Records what the decoders of running processes receive, as seeds of the fuzzer.

`python -m tests.fuzz.recorder FOLDER pytest ARGUMENTS` runs tests and records the inputs of their servers. Then
`python -m tests.fuzz.recorder FOLDER` adds inputs to the corpus: the shortest of those that run the same lines.
"""

import base64
import hashlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

VARIABLE: Final = "KACTL_RECORDED_INPUTS"
# Of one target and process. The corpus keeps few of them.
_INPUTS_MAX: Final = 300
_SIZE_MAX: Final = 2_000
_ENVIRONMENT: Final = "from tests.fuzz.recorder import begin\nbegin()\n"


def _argument(name: str, target: str) -> Callable[[dict[str, Any]], tuple[str, bytes] | None]:
    return lambda local: None if local[name] is None else (target, bytes(local[name]))


def _request(local: dict[str, Any]) -> tuple[str, bytes] | None:
    from tests.transports.kafka.listener.fuzz import KINDS

    name = next((api.name for api in KINDS.values() if api.request is local["self"]), None)
    return (
        None
        if name is None
        else (f"request {name}", bytes([local["version"]]) + bytes(local["data"][local["begin"] :]))
    )


def _answer(local: dict[str, Any]) -> tuple[str, bytes] | None:
    level = "3.9" if local["self"]._versions.leader_and_isr >= 5 else "2.6"
    return f"answers to {type(local['request']).__name__} {level}", b"\0\0\0\x09" + bytes(local["data"][4:])


def _deserialized(target: str) -> Callable[[dict[str, Any]], tuple[str, bytes] | None]:
    return lambda local: (target, bytes(local["answer"][local["offset"] :]))


def _parameters(local: dict[str, Any]) -> tuple[str, bytes]:
    given = "\0".join(f"{name}={value}" for name, value in local["given"])
    return f"parameters {local['wanted'].__name__}", given.encode("utf-8", "replace")


def _body(local: dict[str, Any]) -> tuple[str, bytes]:
    return f"body {local['route'].takes_body.__name__}", local["content"]


def _text(argument: str, target: str) -> Callable[[dict[str, Any]], tuple[str, bytes] | None]:
    return lambda local: (
        None if local[argument] is None else (target, local[argument].encode("utf-8", "surrogateescape"))
    )


# The end of the file and the name of a function, and what its arguments are an input of.
SOURCES: Final[dict[tuple[str, str], Callable[[dict[str, Any]], tuple[str, bytes] | None]]] = {
    ("kafka/listener/schema.py", "Message.reading"): _request,
    ("kafka/codec/response.py", "Decoder.response"): _answer,
    ("formats/records.py", "decode_topic"): _argument("data", "topics"),
    ("formats/records.py", "decode_topic_node"): _argument("data", "topics"),
    ("formats/records.py", "decode_state"): _argument("data", "leaderships"),
    ("formats/records.py", "decode_controller"): _argument("data", "controller"),
    ("formats/records.py", "decode_config"): _argument("data", "configs"),
    ("formats/records.py", "decode_config_change"): _argument("data", "config changes"),
    ("formats/records.py", "decode_isr_notification"): _argument("data", "ISR notifications"),
    ("formats/registration.py", "decode"): _argument("data", "registrations"),
    ("formats/admin_records.py", "decode_reassignment"): _argument("data", "reassignments"),
    ("formats/admin_records.py", "decode_preferred_election"): _argument("data", "elections"),
    ("formats/admin_records.py", "decode_features"): _argument("data", "features"),
    ("formats/admin_records.py", "decode_producer_ids"): _argument("data", "producer ids"),
    ("formats/access.py", "decode_acls"): _argument("data", "ACLs"),
    ("connection/messages.py", "granted"): _argument("frame", "ZooKeeper sessions"),
    ("connection/messages.py", "event"): _argument("frame", "ZooKeeper events"),
    ("zookeeper/request.py", "MultiRead.deserialize"): _deserialized("ZooKeeper reads"),
    ("zookeeper/state_reads.py", "_decode"): _deserialized("ZooKeeper states"),
    ("tcp/framing.py", "FrameDecoder.feed"): _argument("data", "tcp frames"),
    ("security/access/distinguished_name.py", "subject_of"): _argument("certificate", "certificate"),
    ("admin/cursor.py", "read"): _text("cursor", "cursors"),
    ("admin/origin.py", "_authority"): _text("text", "hosts"),
    ("admin/origin.py", "_is_own"): _text("origin", "origins"),
    ("admin/route.py", "_body"): _body,
    ("admin/route.py", "_parameters"): _parameters,
    ("cli/api_client.py", "refusal"): _argument("content", "problems"),
    ("cli/api_client.py", "_decoded"): _argument("content", "answers"),
}


def begin() -> None:
    """Record in this process, and in those that it forks."""
    folder = Path(os.environ[VARIABLE])
    known: dict[str, set[bytes]] = {}
    sources: dict[Any, Any] = {}

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        source = sources.get(code, sources)
        if source is sources:
            place = "/".join(code.co_filename.rsplit("/", 2)[-2:])
            names = (place, "/".join(code.co_filename.rsplit("/", 3)[-3:]))
            source = sources[code] = next(
                (SOURCES[name, code.co_qualname] for name in names if (name, code.co_qualname) in SOURCES), None
            )
        if source is None:
            return
        found = source(frame.f_locals)
        if found is not None and len(found[1]) <= _SIZE_MAX:
            inputs = known.setdefault(found[0], set())
            if found[1] not in inputs and len(inputs) < _INPUTS_MAX:
                inputs.add(found[1])
                place = folder / found[0].replace("/", " ")
                place.mkdir(parents=True, exist_ok=True)
                (place / hashlib.sha256(found[1]).hexdigest()).write_bytes(found[1])

    threading.setprofile(note)
    sys.setprofile(note)


def keep(folder: Path) -> None:
    """Add recorded inputs to the corpus: of those that run the same lines, the shortest."""
    from .corpus import FOLDER, recorded
    from .decoders import targets
    from .guided import lines_of

    logging.disable()
    for target in targets():
        place = folder / target.name.replace("/", " ")
        if not place.is_dir():
            continue
        outcomes = {frozenset(lines_of(target, content)) for content in target.seeds}
        inputs = set(recorded(target.name))
        for content in sorted((path.read_bytes() for path in place.iterdir()), key=len):
            reached = frozenset(lines_of(target, content))
            if reached not in outcomes:
                outcomes.add(reached)
                inputs.add(content)
        if inputs:
            lines = sorted(base64.b64encode(content).decode() for content in inputs)
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{place.name}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
            print(f"{target.name}: {len(inputs)} inputs")


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    if len(sys.argv) == 2:
        keep(folder)
        return
    with tempfile.TemporaryDirectory() as hook:
        (Path(hook) / "sitecustomize.py").write_text(_ENVIRONMENT, encoding="utf-8")
        os.environ |= {VARIABLE: str(folder), "PYTHONPATH": f"{hook}{os.pathsep}{Path.cwd()}"}
        sys.exit(os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-m", *sys.argv[2:]]))


if __name__ == "__main__":
    main()
