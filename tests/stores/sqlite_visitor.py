"""Another process that opens a store, prints what it finds, and closes the store: `FILE [ID] [stay]`.

With an id it contests for the controllership. With `stay` it creates the topic `stayed` and waits to be killed.
"""

import functools
import sys
from typing import Final

import anyio

from kactl.model import Assignment, TopicRef
from kactl.model.errors import ControllerMoved, KactlError
from kactl.stores.sqlite import SqliteStore

# Three renewals of a process on a busy machine, and not so long that watching one of them takes a test's time.
SESSION_MS: Final = 12_000


async def main(file: str, controller_id: str = "", stays: str = "") -> None:
    try:
        async with SqliteStore(file, session_timeout_ms=SESSION_MS) as store:
            if controller_id:
                await contest(store, int(controller_id))
            record = await store.controller()
            print("controller", "none" if record is None else f"{record.id} {record.epoch}", flush=True)
            print("topics", *await store.topics(), flush=True)
            if stays:
                await store.create_topic(TopicRef("stayed"), {0: Assignment((1,))}, {})
                print("stays", flush=True)
                await anyio.sleep_forever()
    except KactlError as error:
        print("refused:", error, flush=True)


async def contest(store: SqliteStore, controller_id: int) -> None:
    try:
        print("elected", (await store.contest(controller_id)).epoch, flush=True)
    except ControllerMoved:
        print("not elected", flush=True)


if __name__ == "__main__":
    anyio.run(functools.partial(main, *sys.argv[1:]))
