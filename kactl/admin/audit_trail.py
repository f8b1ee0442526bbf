"""Audit trail: the newest attempts to change something, and requests that were denied.

The event log has the changes that happened, for every viewer. For administrators, the trail
also has failed and denied attempts, with their clients. Denials of the same kind are counted together, so that no
client can push out the other records.

With a folder, all records are also in files. They are written in a thread, within a second, so that the controller
never waits for a disk; before a change that cannot be undone, the request waits for the record of its attempt.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import anyio
import msgspec

from kactl.runtime.addresses import group_of
from kactl.runtime.conditions import Conditions
from kactl.runtime.escaping import harmless_json
from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread

from .audit_file import AuditFile
from .schema import AuditRecord

log = logger(__name__)

RECORDS_MAX: Final = 10_000
DENIED_PAUSE_S: Final = 10.0
# Kinds of denials that are collapsed at the same time.
DENIED_MAX: Final = 1000

# Records that wait for the disk; older ones are lost.
PENDING_MAX: Final = 10_000
BATCH: Final = 500
SYNC_S: Final = 1.0

_Denied = tuple[str, str, str]


class AuditTrail:
    """The newest records. Their numbers have no gaps, so that a reader notices what it has missed.

    Args:
        file: also takes all records; None for none.
        required: nothing may be changed while the file cannot be written.

    Attributes:
        lost: number of records that the file did not take.
    """

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, *, file: AuditFile | None = None, required: bool = False
    ) -> None:
        self._records: deque[AuditRecord] = deque(maxlen=RECORDS_MAX)
        self._now_s = now_s
        self._file = file
        self._pending: deque[AuditRecord] = deque()
        self._writing = asyncio.Lock()
        self._conditions = Conditions(log)
        self._seq = 0 if file is None else file.last_seq
        self.required = required
        self.lost = 0
        # The newest record of each kind of denial, its time, and the number of denials since.
        self._denied: OrderedDict[_Denied, tuple[AuditRecord, float, int]] = OrderedDict()

    def add(self, **fields: Any) -> AuditRecord:
        """Add a record."""
        self._seq += 1
        record = AuditRecord(seq=self._seq, **fields)
        self._records.append(record)
        if self._file is not None:
            self._pending.append(record)
            if len(self._pending) > PENDING_MAX:
                self._pending.popleft()
                self.lost += 1
        return record

    async def flush(self) -> bool:
        """Write the records that wait. Returns whether all of them are in the file."""
        is_written = False
        # A batch is always written completely: a second attempt would repeat it.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                is_written = await self._flushed()
        return is_written

    async def run(self) -> None:
        """Write and synchronise the records each second, until cancelled."""
        while True:
            await anyio.sleep(SYNC_S)
            self._add_old_rests()
            if self._pending:
                await self.flush()

    async def close(self) -> None:
        """Write what waits, and close the file."""
        for kind in list(self._denied):
            self._add_rest(kind)
        if self._file is not None:
            await self.flush()
            self._file.close()

    async def _flushed(self) -> bool:
        file = self._file
        if file is None:
            return True
        try:
            while self._pending:
                batch = list(islice(self._pending, BATCH))
                await run_in_thread(
                    file.write, b"".join(harmless_json(msgspec.json.encode(each)) + b"\n" for each in batch)
                )
                for _ in batch:
                    self._pending.popleft()
            await run_in_thread(file.sync)
        except OSError as error:
            text = "the audit trail cannot be written (%s): check its disk"
            self._conditions.add("", logging.ERROR, text, error.strerror)
            return False
        self._conditions.end("", "the audit trail is written again")
        return True

    def deny(self, **fields: Any) -> bool:
        """Add a denial: the first of its kind at once, others as a number. Returns whether there is a new record."""
        kind = (fields["principal"], fields["operation"], group_of(fields["peer"]))
        now_s = self._now_s()
        last, then_s, count = self._denied.get(kind, (None, 0.0, 0))
        if last is not None and now_s - then_s < DENIED_PAUSE_S:
            self._denied[kind] = last, then_s, count + 1
            return False
        self._denied[kind] = self.add(result="denied", count=count + 1, **fields), now_s, 0
        self._denied.move_to_end(kind)
        while len(self._denied) > DENIED_MAX:
            self._add_rest(next(iter(self._denied)))
        return True

    def read(self, after: int, limit: int) -> list[AuditRecord]:
        """Returns records after a number, oldest first."""
        self._add_old_rests()
        return [record for record in self._records if record.seq > after][:limit]

    def _add_old_rests(self) -> None:
        for kind in list(self._denied):
            if self._now_s() - self._denied[kind][1] >= DENIED_PAUSE_S:
                self._add_rest(kind)

    def _add_rest(self, kind: _Denied) -> None:
        """Add the denials that have been counted since the last record of their kind."""
        last, _, count = self._denied.pop(kind)
        if count:
            fields = {name: getattr(last, name) for name in last.__struct_fields__ if name not in ("seq", "count")}
            self.add(count=count, **fields)
