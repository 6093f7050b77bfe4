# SPDX-License-Identifier: Apache-2.0
"""Publisher: versions of a model whose tensors lie on several ranks.

Each rank owns some tensors and runs a `segue.Publisher` for them; what it lacks of them it gets
from the other ranks one tensor at a time. Around that stand meetings, so that all ranks begin the
same version, and none commits before all have compared and uploaded everything; from there on the
protocol of owners (docs/protocol.md, section 2) makes one version or none.

What must hold: where one rank fails, all fail, with every baseline where it was; and whatever
happens on one rank, the others hear of it, or give up in time.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import hashlib
import os
import re
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import distributed as dist

from .. import options as checked
from .. import publisher as single
from .._core import PublishReport
from ..errors import Error, InvalidArgumentError, UnavailableError
from ..tensors import pairs_of
from .exchange import Exchange, Links, LostRankError, is_plain, plain
from .meeting import Meetings, failure_of
from .partitions import Held, hold_all, spec_of
from .sharing import Shared, share_out

Tensors = torch.nn.Module | Mapping | Iterable | Callable[[], Mapping | Iterable]

# Settings of segue.Publisher that this one makes itself.
OWN_OPTIONS = frozenset({"owner", "owners", "owned", "session", "owner_timeout",
                         "missing_is_unchanged"})
# Those that make one version's bytes or fate, and must be the same on all ranks.
SHARED_OPTIONS = frozenset({"profile", "retain", "anchors", "branch", "chunk_size", "shard_size"})
# Attempts to open a publisher, of each process group.
_openings: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Publisher:
    """Publishes each step of a distributed trainer as a version of a lineage. Every rank of `group`
    (torch.distributed's default one) opens one and makes the same calls.

    `store`: URL, the same for all ranks in effect. `tensors`: what this rank holds: a module (its
    `state_dict()`), a mapping, pairs of name and tensor, or a callable that returns these anew for
    each version. Values are torch tensors, which are whole; DTensors (FSDP2, tensor parallel), of
    which this rank has a part; or `Partition`. A tensor that several ranks hold counts once; copies
    are not compared with each other. A rank need not have every name.

    `base`: None, and the tensors' bytes now are the base, the version that the first delta starts
    from; or the directory of a checkpoint that is a version. `timeout`: seconds that a rank waits
    for the others, at each of the few points where they meet. `options`: as of `segue.Publisher`,
    the same on all ranks; `threads`: by default the cores divided by torchrun's LOCAL_WORLD_SIZE.

    Memory of a rank: its baseline, which is the tensors that it owns (the model's bytes divided by
    the ranks, as far as tensors divide), the largest tensor that it puts together from others'
    parts, and the delta. InvalidArgumentError, on every rank, for partitions that are not the whole
    of a tensor, or for ranks that disagree; UnavailableError, naming them, for ranks that do not
    come.

    One thread at a time uses it.
    """

    def __init__(self, store, tensors: Tensors, *, lineage: str = "default", base=None,
                 group: dist.ProcessGroup | None = None, timeout: float = 600.0, **options):
        if not dist.is_initialized():
            raise InvalidArgumentError("torch.distributed has no process group yet: make one first")
        group = group or dist.group.WORLD
        self._tensors, self._timeout = tensors, timeout
        if dist.get_rank(group) < 0:
            raise InvalidArgumentError("this rank is not in the group")
        self._ranks = dist.get_process_group_ranks(group)
        self._rank = dist.get_rank(group)
        self._links: Links | None = None
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None
        self._committing: concurrent.futures.Future | None = None
        self._handles: list = []
        settings = {key: repr(options[key]) for key in sorted(SHARED_OPTIONS & options.keys())}
        settings.update(lineage=lineage, base="tensors" if base is None else "files")
        held = self._settle(group, settings, options)
        self._core = self._open(store, held, base,
                                self._owner_options({"lineage": lineage, "threads": _own_cores(),
                                                     **options}))

    # --- Opening ----------------------------------------------------------------------------------

    def _settle(self, group, settings, options):
        """The meeting in which ranks say what they hold, and who owns what comes out."""
        names = dist.PrefixStore("segue", dist.distributed_c10d._get_default_store())
        place = hashlib.sha256(repr(self._ranks).encode()).hexdigest()[:16]
        opening = Meetings(dist.PrefixStore(f"opening/{place}", names), self._rank, self._ranks,
                           self._timeout)
        opening.attempt = _openings.get(group, 0)
        try:
            opening.next_attempt("opening a publisher")
        finally:
            _openings[group] = opening.attempt
        record: dict = {"settings": settings}
        held: dict[str, Held] = {}
        own: Exception | None = None
        try:
            taken = OWN_OPTIONS.intersection(options)
            if taken:
                raise InvalidArgumentError(f"{', '.join(sorted(taken))}: the ranks settle that")
            if not isinstance(self._tensors, (torch.nn.Module, Mapping)) and \
                    not callable(self._tensors):
                self._tensors = list(pairs_of(self._tensors))  # Pairs may come only once.
            held = self._hold(None)
            record["holds"] = [one.declaration() for one in held.values()]
        except Exception as error:
            own = error
            record["failure"] = failure_of(error)
        try:
            answer = opening.meet("open", record, self._decide_opening)
        except BaseException as error:
            self._leave(opening, ("open",), error)
            if own is not None:
                raise error from _cause(own)
            raise
        self._shared = [Shared.from_json(value) for value in answer["shared"]]
        self._exchange = Exchange(self._shared, self._rank, len(self._ranks))
        self._declared = {name: one.declaration() for name, one in held.items()}
        self._session = answer["session"]
        self._store = dist.PrefixStore(self._session, names)
        self._meetings = Meetings(self._store, self._rank, self._ranks, self._timeout)
        self._meetings.next_attempt("opening")
        return held

    def _decide_opening(self, records):
        first = records[0]["settings"]
        for rank, record in zip(self._ranks, records):
            if record["settings"] != first:
                raise InvalidArgumentError(f"ranks open different publishers: {first} on rank "
                                           f"{self._ranks[0]}, {record['settings']} on rank {rank}")
        shared = share_out([record["holds"] for record in records], self._ranks)
        return {"session": secrets.token_hex(8), "shared": [tensor.to_json() for tensor in shared]}

    def _open(self, store, held, base, options):
        core, failure = None, None
        try:
            self._connect()
            if base is None:
                core = self._open_from_tensors(store, held, options)
            else:
                core = single.Publisher(store, **options, base=base, owned=self.owned)
        except Exception as error:
            failure = self._failed(error)
        try:
            digest = "" if core is None else core.baseline_digest
            whole = self._meetings.meet(
                "opened", {"failure": failure, "digest": digest}, lambda records:
                single.add_digests(record["digest"] for record in records))
            # Every rank knows from here on which version all of them begin at.
            failure = self._try(lambda: core.settle_baseline(whole)) \
                if len(self._ranks) > 1 else None
            version = core.version
            self._meetings.meet("settled", {"failure": failure, "version": version},
                                self._check_same_version)
        except BaseException as error:
            self._leave(self._meetings, ("opened", "settled"), error)
            if core is not None:
                core.close()
            raise
        return core

    def _check_same_version(self, records):
        found = [record["version"] for record in records]
        if any(version != found[0] for version in found):
            raise InvalidArgumentError(f"the ranks begin at versions {found}: they have not opened "
                                       "the same store")

    def _open_from_tensors(self, store, held, options):
        """Their bytes now, written to where the baseline is to have them."""
        memory: dict[str, torch.Tensor] = {}
        by_name = {tensor.name: tensor for tensor in self._shared}
        rounds = self._exchange.run(
            self._links, held, lambda name, size: memory.pop(name) if name in memory
            else torch.empty(size, dtype=torch.uint8))

        def read(name, address, size):
            to = torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)
            if by_name[name].parts:
                memory[name] = to
                next(rounds)  # This very tensor: reads and rounds are both in the plan's order.
            else:
                to.copy_(plain(held[name].local).reshape(-1).view(torch.uint8))

        specs = [(tensor.name, spec_of(tensor.dtype, tensor.shape)) for tensor in self._shared]
        base = single.BaseReader(specs, self.owned, read)
        try:
            return single.Publisher(store, **options, base=base)
        finally:
            for _ in rounds:  # What the other ranks still need; all of it where opening failed.
                pass

    def _owner_options(self, options):
        if len(self._ranks) == 1:
            return options
        # Owners other than 0 wait twice as long for owner 0 as that waits for them.
        return {**options, "owner": self._rank, "owners": len(self._ranks),
                "session": self._session, "owner_timeout": self._timeout / 2}

    # --- A version --------------------------------------------------------------------------------

    def publish(self, step: int, tensors: Tensors | None = None, *, wait: bool = True
                ) -> PublishReport | concurrent.futures.Future:
        """Makes version `step` of all ranks' tensors; `tensors` in place of those that were given
        at the opening: the same names, dtypes, shapes and parts. Returns a PublishReport once the
        version is visible.

        It begins once all ranks have called it. Nothing may write to the tensors until it returns;
        what torch counts as a write meanwhile makes it fail (InvalidArgumentError). With `wait` off
        it returns a Future as soon as every rank has compared its tensors, and the trainer goes on
        to write to them; payloads are uploaded and the version is made visible by a thread. The
        next publish waits for that thread; whether it has failed only the Future says.

        InvalidArgumentError: ranks publish different versions, or tensors are not those of the
        opening. UnavailableError: a rank is gone, or the store. After any failure no rank has the
        version, baselines are as before, and ranks that are there may publish again. (Where only
        the answer of the last step was lost the version may be there: the next publish finds out.)
        """
        if self._committing is not None:
            concurrent.futures.wait([self._committing])
            self._committing = None
        self._meetings.next_attempt(f"version {step}")
        own: Exception | None = None
        try:
            record, held, own = self._begin_with(step, tensors)
            fresh = self._meetings.meet("begin", record, self._decide_beginning)
            record = self._compare(step, held, fresh)
            whole = self._meetings.meet("compared", record, self._add_up)
        except BaseException as error:
            self._core.discard()
            self._leave(self._meetings, ("begin", "compared"), error)
            if own is not None:
                raise error from _cause(own)
            raise
        if wait:
            return self._commit(step, whole)
        self._thread = self._thread or concurrent.futures.ThreadPoolExecutor(1, "segue-commit")
        self._committing = self._thread.submit(self._commit, step, whole)
        return self._committing

    def attach(self, optimizer: torch.optim.Optimizer, *, every: int = 1,
               step: int | None = None,
               wait: bool = True, on_error: Callable[[Error], None] | None = None) -> Any:
        """Publishes after every `every`-th step of the optimizer, as the version whose number is
        the count of its steps; `step`: how many it has done already, None for the version that the
        publisher begins at (0 in a new lineage), which is right for a trainer that goes on from the
        checkpoint of that version. Returns a handle whose
        `remove()` ends it. Where several optimizers train the model, attach to the one that steps
        last.

        What publish raises comes out of `optimizer.step()`, whose own work is done by then; or goes
        to `on_error`, and training goes on: the next version holds the lost one's changes too. With
        `wait` off what a thread's part failed with comes out after the publish that follows it, or
        of `close()`."""
        every = checked.count("every", every, 1)
        count = (self.version or 0) if step is None else checked.count("step", step)

        def after_step(*_):
            nonlocal count
            count += 1
            if count % every:
                return
            # Of the version before, which other ranks may have: so this one is published first.
            before = self._committing
            errors = [before.exception()] if before is not None and before.exception() else []
            try:
                self.publish(count, wait=wait)
            except Error as error:
                errors.append(error)
            if errors and on_error is None:
                raise errors[-1] from (errors[0] if len(errors) > 1 else None)
            for error in errors:
                on_error(error)

        handle = optimizer.register_step_post_hook(after_step)
        self._handles.append(handle)
        return handle

    # --- Parts of it ------------------------------------------------------------------------------

    def _hold(self, tensors):
        tensors = self._tensors if tensors is None else tensors
        if callable(tensors) and not isinstance(tensors, torch.nn.Module):
            tensors = self._ask(tensors)
        return hold_all(tensors)

    @staticmethod
    def _ask(call):
        """What the trainer's callable gives, all of it."""
        try:
            given = call()
            whole = isinstance(given, (torch.nn.Module, Mapping))
            return given if whole else list(pairs_of(given))
        except Error:
            raise
        except Exception as error:
            kind = UnavailableError if isinstance(error, OSError) else InvalidArgumentError
            raise kind("the callable that gives the tensors raised "
                       f"{type(error).__name__}: {error}") from error

    def _begin_with(self, step, tensors):
        """What this rank says at the beginning, what it holds, and what it fails with."""
        record: dict = {"links": not self._exchange.needed or self._links is not None}
        held: dict[str, Held] = {}
        try:
            record["step"] = checked.count("step", step)
            held = self._hold(tensors)
            self._check_as_declared(held)
        except Exception as error:
            record["failure"] = failure_of(error)
            return record, held, error
        return record, held, None

    def _check_as_declared(self, held):
        for name, one in held.items():
            if one.declaration() != self._declared.get(name):
                before = self._declared.get(name)
                raise InvalidArgumentError(
                    f"tensor '{name}' is {_told(one.declaration())}, and when the publisher was "
                    f"opened {_told(before) if before else 'was not there'}")
        missing = self._declared.keys() - held.keys()
        if missing:
            raise InvalidArgumentError(f"tensor '{min(missing)}' is missing")

    def _decide_beginning(self, records):
        """Whether the ranks have to be connected anew."""
        for rank, record in zip(self._ranks, records):
            if record["step"] != records[0]["step"]:
                raise InvalidArgumentError(
                    f"ranks publish different versions: {records[0]['step']} on rank "
                    f"{self._ranks[0]}, {record['step']} on rank {rank}")
        return not all(record["links"] for record in records)

    def _compare(self, step, held, fresh):
        """Everything until this rank's part of the delta is complete; returns what the meeting is
        told: its digests, or what it fails with. A rank that fails goes through the rounds all the
        same, for the others' sake."""
        try:
            if fresh:
                self._disconnect()
                self._connect()
            counts = {name: one.write_counts() for name, one in held.items()}
            failure = self._try(lambda: self._core.begin(step))
            failure = failure or self._try(lambda: self._put_own(held))
            for name, tensor in self._gather(held):
                failure = failure or self._try(lambda: self._core.put(name, tensor))
            written = [name for name, one in held.items() if one.write_counts() != counts[name]]
            if failure is None and written:
                failure = ("invalid_argument", f"tensor '{written[0]}' was written to while it "
                           "was published: nothing may until publish returns")
            return {"failure": failure} if failure else {"digests": self._core.digests()}
        except Exception as error:
            return {"failure": self._failed(error)}

    @staticmethod
    def _add_up(records):
        """The digests of the whole version, at its base and now."""
        return [single.add_digests(record["digests"][which] for record in records)
                for which in range(2)]

    def _put_own(self, held):
        """What this rank owns and has all of: in place, or a copy at a time."""
        own = [(tensor.name, held[tensor.name].local) for tensor in self._shared
               if tensor.owner == self._rank and not tensor.parts]
        self._core.put_all([(name, tensor) for name, tensor in own if is_plain(tensor)])
        for name, tensor in own:
            if not is_plain(tensor):
                self._core.put(name, plain(tensor))

    def _gather(self, held):
        if not self._exchange.needed:
            return iter(())
        memory = torch.empty(self._exchange.largest, dtype=torch.uint8)
        return self._exchange.run(self._links, held, lambda _, size: memory[:size])

    @staticmethod
    def _try(call):
        try:
            call()
        except Exception as error:
            return failure_of(error)
        return None

    def _failed(self, error):
        """What the meeting is told. The links are cut, so that nobody waits for this rank."""
        self._disconnect()
        cause = error if isinstance(error, LostRankError) else error.__cause__
        if isinstance(cause, LostRankError):
            return "unavailable", f"lost {self._meetings.named([cause.rank])}: {cause}"
        return failure_of(error)

    def _connect(self):
        if self._exchange.needed:
            links = dist.PrefixStore(f"links/{self._meetings.attempt}", self._store)
            self._links = Links(links, self._rank, len(self._ranks), self._timeout)

    def _disconnect(self):
        links, self._links = self._links, None
        if links is not None:
            links.close()

    def _leave(self, meetings, names, error):
        """After a meeting that was not held. Ctrl-C and the like are of this rank alone: it tells
        the others."""
        if isinstance(error, Exception):
            return
        self._disconnect()
        for name in names:
            meetings.excuse(name, failure_of(error))

    def _settle_and_upload(self, whole):
        if len(self._ranks) > 1:
            self._core.settle(*whole)
        self._core.upload()

    def _commit(self, step, whole):
        """Uploads, and commits once all have: from there on it is a matter of small records. What
        `whole` tells all ranks alike, that the version cannot be made or is there already, ends it
        on all of them before."""
        try:
            failure = self._try(lambda: self._settle_and_upload(whole))
            self._meetings.meet("uploaded", {"failure": failure}, lambda _: True)
        except BaseException as error:
            self._core.discard()
            self._leave(self._meetings, ("uploaded",), error)
            raise
        try:
            return self._core.commit()
        except Error as error:
            raise self._explained(error, step) from error

    def _explained(self, error, step):
        """With what the first rank has found, which collects what the others hand in."""
        owners = re.sub(r"\bowner (\d+)( of \d+)?", lambda found:
                        f"{found[0]} (rank {self._ranks[int(found[1])]})", str(error))
        text = f"version {step}: {owners}"
        try:
            self._meetings.tell("fate", text)
            first = self._meetings.hear("fate", 0) if self._rank != 0 else None
        except UnavailableError as lost:
            first = str(lost)
        return type(error)(text + (f" (rank {self._ranks[0]}: {first})" if first else ""))

    # --- The rest ---------------------------------------------------------------------------------

    @property
    def version(self) -> int | None:
        """The baseline's version; None where no version is known to have these bytes yet."""
        return self._core.version

    @property
    def baseline_bytes(self) -> int:
        """Bytes of this rank's baseline in memory."""
        return self._core.baseline_bytes

    @property
    def owned(self) -> list[str]:
        """Names of the tensors that this rank owns."""
        return [tensor.name for tensor in self._shared if tensor.owner == self._rank]

    def close(self) -> None:
        """Lets go of the baseline, of optimizers and of the other ranks. Where the last version was
        a thread's it is waited for, and what that failed with is raised. Further calls fail."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._disconnect()
        self._core.close()
        last, self._committing = self._committing, None
        if last is not None:
            last.result()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __repr__(self) -> str:
        core = getattr(self, "_core", None)
        return (f"<segue.distributed.Publisher, rank {getattr(self, '_rank', '?')} of "
                f"{len(getattr(self, '_ranks', ()))}: {core!r}>")

    def __reduce__(self):
        raise TypeError("a Publisher cannot be pickled: open one on each rank")


def _cause(error):
    """Of what this rank's meeting raises: the trainer's own exception, where there is one."""
    return error if error.__cause__ is None else error.__cause__


def _own_cores():
    """This rank's part of those that the process may use, as torchrun has started it."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(os.sched_getaffinity(0)) // local)


def _told(declaration):
    _, dtype, shape, offset, size = declaration
    return f"{dtype} {shape}" + (f" (of it {size} at {offset})" if size != shape else "")
