# SPDX-License-Identifier: Apache-2.0
"""Meetings: how ranks agree before each step that all of them take, or that none takes.

Over the key-value store of the process group rather than by collectives: a collective that a rank
misses ends in errors that name whoever stood beside it, and leaves the group unusable. In a meeting
each rank puts a record; the first rank waits for all, decides, and puts the verdict that the others
wait for. So all hear the same, and who is missing is known by name.

Meetings belong to *attempts* at something, a version say. A rank that comes too late for it hears
so at once; one that never came to it goes on to the next, so nobody counts the failures of others.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import distributed as dist

from ..errors import CLASSES, Error, InternalError, UnavailableError

PIECE_BYTES = 4 << 20  # Of a value: a TCPStore takes at most 8 MiB.
POLL_SECONDS = (0.001, 0.05)  # First and longest wait between two looks.
GRACE_SECONDS = 10.0  # How long the others are waited for once one has failed.
NAMES_MAX = 8  # Ranks that a message names.

Records = Sequence[dict]
Failure = tuple[str, str]  # Status code and message.


def failure_of(error: BaseException) -> Failure:
    """For a record: what its rank fails with."""
    code = error.code if isinstance(error, Error) else "internal"
    return code, str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"


class Meetings:
    """Of rank `rank` of the group's `ranks` (their numbers in the whole job, in the group's order).
    `store`: the group's, with a prefix that no other use of it has. `timeout`: seconds that a
    meeting waits for the others."""

    def __init__(self, store: dist.Store, rank: int, ranks: Sequence[int], timeout: float):
        self.store = store
        self.rank, self.ranks = rank, list(ranks)
        self.timeout = timeout
        self.attempt = 0
        self._subject = ""
        self._kept: list[list[str]] = []  # Keys of the last attempts.

    def next_attempt(self, subject: str) -> None:
        """Goes on to the first attempt that is not over. UnavailableError where one at this very
        `subject` is over that this rank has not come to."""
        self._subject = subject
        self._forget()
        while True:
            self.attempt += 1
            key = self._key("over")
            if not self._ask(lambda k=key: self.store.check([k])):
                return
            if self._get(key) == subject:
                raise UnavailableError(f"the other ranks have given up on {subject}: this one "
                                       f"({self.named([self.rank])}) came too late")

    def meet(self, name: str, record: dict, decide: Callable[[Records], Any]) -> Any:
        """Puts this rank's `record` and returns what `decide` makes of all of them, on every rank.
        A record with "failure", or `decide` raising, makes every rank raise that; a rank that does
        not come within the timeout makes all others raise UnavailableError, naming it. After a
        meeting that raises, the attempt is over."""
        self._put(self._key(name, self.rank), record)
        if self.rank == 0:
            self._put(self._key(name, "verdict"), self._decide(name, decide))
        elif not self._wait_for(self._key(name, "verdict"), self.timeout + 2 * GRACE_SECONDS):
            self.give_up()
            missing = [rank for rank in range(len(self.ranks)) if not self._has_come(name, rank)]
            raise UnavailableError(f"{self.named(missing or [0])} did not come to '{name}' within "
                                   f"{self.timeout + 2 * GRACE_SECONDS:g} s")
        verdict = self._get(self._key(name, "verdict"))
        if "failure" in verdict:
            self.give_up()
            code, message = verdict["failure"]
            raise CLASSES.get(code, InternalError)(message)
        return verdict["answer"]

    def excuse(self, name: str, failure: Failure) -> None:
        """In place of `meet`, for a rank that cannot wait: the others fail with `failure`."""
        key = self._key(name, "verdict" if self.rank == 0 else self.rank)
        try:
            if not self._ask(lambda: self.store.check([key])):
                text = f"{self.named([self.rank])}: {failure[1]}"
                self._put(key, {"failure": (failure[0], text if self.rank == 0 else failure[1])})
        except UnavailableError:
            pass  # Without a store there is nobody to tell.
        self.give_up()

    def give_up(self) -> None:
        """Says that the attempt is over, for ranks that have not come yet."""
        try:
            self._put(self._key("over"), self._subject)
        except UnavailableError:
            pass  # Without a store there is nobody to tell.

    def tell(self, name: str, text: str) -> None:
        """Leaves a text that others may `hear`; nobody waits for it."""
        self._put(self._key(name, self.rank), text)

    def hear(self, name: str, rank: int) -> str | None:
        """What `rank` has told, or None."""
        key = self._key(name, rank)
        return self._get(key) if self._ask(lambda: self.store.check([key])) else None

    def named(self, numbers: Sequence[int]) -> str:
        """"rank 3", "ranks 3, 5": as they are called in the whole job."""
        names = [str(self.ranks[number]) for number in numbers[:NAMES_MAX]]
        more = f" and {len(numbers) - NAMES_MAX} more" if len(numbers) > NAMES_MAX else ""
        return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(names)}{more}"

    # --- The first rank ---------------------------------------------------------------------------

    def _decide(self, name, decide):
        records, missing = self._collect(name)
        failed = [(rank, record["failure"]) for rank, record in records.items()
                  if record.get("failure")]
        if failed or missing:
            return {"failure": self._failure(name, failed, missing)}
        try:
            return {"answer": decide([records[rank] for rank in range(len(self.ranks))])}
        except Exception as error:
            return {"failure": failure_of(error)}

    def _collect(self, name):
        """Records by rank, and who has not come. One that has failed shortens the wait."""
        records: dict[int, dict] = {}
        end = time.monotonic() + self.timeout
        pause = POLL_SECONDS[0]
        while True:
            for rank in range(len(self.ranks)):
                if rank not in records and self._has_come(name, rank):
                    records[rank] = self._get(self._key(name, rank))
                    if records[rank].get("failure"):
                        end = min(end, time.monotonic() + GRACE_SECONDS)
            missing = [rank for rank in range(len(self.ranks)) if rank not in records]
            if not missing or time.monotonic() >= end:
                return records, missing
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS[1])

    def _failure(self, name, failed, missing) -> Failure:
        parts = [f"{self.named([rank])}: {message}" for rank, (_, message) in failed[:NAMES_MAX]]
        if missing:
            parts.insert(0, f"{self.named(missing)} did not come to '{name}'")
        code = "unavailable" if missing else failed[0][1][0]
        return code, "; ".join(parts)

    # --- The store --------------------------------------------------------------------------------

    def _key(self, name, who=None):
        return f"{self.attempt}/{name}" if who is None else f"{self.attempt}/{name}/{who}"

    def _has_come(self, name, rank):
        return self._ask(lambda: self.store.check([self._key(name, rank)]))

    def _wait_for(self, key, seconds):
        end = time.monotonic() + seconds
        pause = POLL_SECONDS[0]
        while not self._ask(lambda: self.store.check([key])):
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS[1])
        return True

    def _put(self, key, value):
        data = zlib.compress(json.dumps(value).encode(), 1)
        pieces = [data[at:at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        for number, piece in enumerate(pieces[1:], 1):
            self._set(f"{key}/piece{number}", piece)
        self._set(key, len(pieces).to_bytes(4, "little") + pieces[0])  # Last: now it is there.

    def _set(self, key, data):
        self._ask(lambda: self.store.set(key, data))
        if self._kept:
            self._kept[-1].append(key)

    def _get(self, key):
        first = self._ask(lambda: self.store.get(key))
        data = first[4:]
        for number in range(1, int.from_bytes(first[:4], "little")):
            data += self._ask(lambda n=number: self.store.get(f"{key}/piece{n}"))
        return json.loads(zlib.decompress(data))

    def _forget(self):
        """Removes what this rank put for attempts that nobody looks at any more; what says that one
        is over stays, for ranks that come late."""
        self._kept.append([])
        if len(self._kept) > 3:
            for key in self._kept.pop(0):
                if not key.endswith("/over"):
                    self._ask(lambda k=key: self.store.delete_key(k))

    @staticmethod
    def _ask(call):
        try:
            return call()
        except RuntimeError as error:  # torch.distributed.DistError among them.
            raise UnavailableError(
                "the store of the process group does not answer: the process that keeps it (rank "
                f"0, or the launcher) has ended ({error})") from error
