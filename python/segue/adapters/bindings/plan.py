# SPDX-License-Identifier: Apache-2.0
"""The plan of bindings: every tensor of a checkpoint, and where it lies at this rank.

A tensor is placed by the table of its architecture, or else by probing. One that neither places is
named and the whole is refused. So is a parameter of the engine that nothing was placed in: it would
keep old values for ever. What a plan claims is proven again by the receiver, which opens only if
the bytes under all views are a version of the lineage.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ... import UnsupportedError
from .checkpoint import Checkpoint, Stored
from .cover import EMBEDDING, HEAD, fixed_scales, shared, stale_buffers, unreached
from .elements import integers
from .joined import Joined
from .placement import Live, live_of, widened
from .probe import Prober
from .rules import DERIVED, Context, Mismatch, Part
from .tables import UNKNOWN, Table, table_for
from .topology import Topology
from .twins import Doubts, Twins, unconfirmed

NO_RULE = "the table does not know it"
NAMED_MAX = 8  # Tensors that an error message names; the others are counted.


@dataclasses.dataclass
class BindingPlan:
    """`parts` to bind; `shadows`: tensors that the engine does not load, which this rank keeps in
    memory of its own; `probed`: tensors that were placed by their bytes; `shared`: parameters that
    are none of the parts, but lie in the memory of one."""

    parts: list[Part] = dataclasses.field(default_factory=list)
    shadows: list[Stored] = dataclasses.field(default_factory=list)
    probed: list[str] = dataclasses.field(default_factory=list)
    shared: list[str] = dataclasses.field(default_factory=list)
    lives: dict[str, Live] = dataclasses.field(default_factory=dict)


def lives_of(model: object, stored: Collection[str] = ()) -> dict[str, Live]:
    """The parameters of a torch module by name (tied ones under their first name), with buffers
    that the checkpoint has (`stored`) and what engines derive from parameters; or of a mapping from
    names to tensors."""
    if isinstance(model, Mapping):
        return {name: live_of(name, tensor) for name, tensor in model.items()}
    found = {name: live_of(name, tensor) for name, tensor in model.named_parameters()}
    for name, tensor in model.named_buffers():
        if name in stored and name not in found:
            found[name] = live_of(name, tensor)
    for prefix, module in model.named_modules():
        for attribute in DERIVED:
            tensor = getattr(module, attribute, None)
            name = f"{prefix}.{attribute}" if prefix else attribute
            if name not in found and hasattr(tensor, "data_ptr"):
                found[name] = live_of(name, tensor)
    return found


def aliases_of(model: object) -> Iterator[tuple[str, object]]:
    """All names of a module's parameters, also those under which `lives_of` does not list them."""
    return iter(()) if isinstance(model, Mapping) else model.named_parameters(
        remove_duplicate=False)


def plan_bindings(checkpoint: Checkpoint, model: object, topology: Topology | None = None, *,
                  table: Table | None = None, static: Iterable[str] = (), probe: bool = True,
                  distrusted: Iterable[str] = (), doubted: Iterable[str] = (),
                  beside: Sequence[Part] = ()) -> BindingPlan:
    """Where every tensor of `checkpoint` lies in `model`.

    `table`: by default that of the configuration's architecture. `static`: patterns of parameters
    that no checkpoint has and that do not depend on one. `distrusted`: tensors that are not where
    the table has them; `doubted`: those of other ranks. `beside`: what is bound of another model,
    whose parameters this one may share. UnsupportedError names what has no place.
    """
    distrusted, static = list(distrusted), list(static)
    topology = topology or Topology()
    table = table or table_for(checkpoint.config)
    plan = BindingPlan(lives=lives_of(model, checkpoint.tensors))
    context = Context(checkpoint.tensors, plan.lives, topology, checkpoint.config)
    reasons = dict.fromkeys(distrusted, "it is not where the table has it")
    unplaced: list[Stored] = []
    skipped = 0
    for stored in checkpoint.tensors.values():
        is_skipped = any(pattern.fullmatch(stored.name) for pattern in table.skipped)
        try:
            parts = _place(table, context, stored, stored.name in reasons or (
                is_skipped and not isinstance(model, Joined)))
        except Mismatch as mismatch:
            reasons[stored.name] = str(mismatch)
            parts = None
        if parts is not None:
            plan.parts += parts
        elif is_skipped and stored.name not in reasons:
            skipped += 1
            if skipped % topology.size == topology.rank:
                plan.shadows.append(stored)
        else:
            unplaced.append(stored)
    _tie(context, plan)
    twins, by_table = Twins(checkpoint.tensors), list(plan.parts)
    if unplaced and probe:
        _probe(context, plan, unplaced, reasons, twins)
    elif unplaced:
        for stored in unplaced:
            reasons.setdefault(stored.name, NO_RULE)
    _refuse(reasons, "has no known place in the engine")
    _refuse(unconfirmed(twins, by_table, _doubts(table, {*distrusted, *doubted})),
            "cannot be told from others by their bytes")
    allowed = [*table.static, *map(re.compile, static), *fixed_scales(checkpoint.tensors)]
    bound = [*beside, *plan.parts]
    _refuse(unreached(plan.lives, plan.parts, bound, plan.probed, allowed),
            "of the engine hold what the checkpoint does not have")
    _refuse(stale_buffers(model, plan.lives, bound, allowed),
            "of the engine are buffers that the checkpoint does not have")
    _check_widened(plan)
    plan.shared = shared(plan.lives, plan.parts, allowed)
    return plan


def _doubts(table: Table, suspects: set[str]) -> Doubts:
    """A table asserts words, but for those of a rule that has been wrong."""

    def rule_of(name: str) -> int:
        return next((k for k, (pattern, _) in enumerate(table.rules) if pattern.fullmatch(name)),
                    -1)

    wrong = {rule_of(name) for name in suspects}
    return Doubts(suspects, lambda name: table is not UNKNOWN and rule_of(name) not in wrong)


def _place(table: Table, context: Context, stored: Stored, unknown: bool) -> list[Part] | None:
    """By the table, unless it is wrong about this tensor or says that engines do not load it."""
    if unknown:
        return None
    for pattern, rule in table.rules:
        match = pattern.fullmatch(stored.name)
        if match:
            parts = rule(context, stored, match)
            return _tied_name(context, stored, rule, match) if parts is None else parts
    return None


def _tied_name(context: Context, stored: Stored, rule, match) -> list[Part] | None:
    """A head that the checkpoint has by name and the engine ties to its embedding: one storage,
    two names (case C1)."""
    if not context.config.get("tie_word_embeddings") or not HEAD.fullmatch(stored.name):
        return None
    for name in context.lives:
        if EMBEDDING.fullmatch(name):
            renamed = dataclasses.replace(context, lives={stored.name: context.lives[name]})
            return rule(renamed, stored, match)
    return None


def _tie(context: Context, plan: BindingPlan) -> None:
    """An embedding that the checkpoint has once and the engine holds twice: the head is one more
    copy of it."""
    if not context.config.get("tie_word_embeddings") or any(
            HEAD.fullmatch(name) for name in context.tensors):
        return
    heads = [live for name, live in plan.lives.items() if HEAD.fullmatch(name)]
    tied = [k for k, part in enumerate(plan.parts) if EMBEDDING.fullmatch(part.name)]
    for k in tied:
        part = plan.parts[k]
        for head in heads:
            if head.where() == part.live.where():
                continue  # One storage.
            if (head.shape, head.dtype) != (part.live.shape, part.live.dtype):
                continue
            plan.parts[k] = dataclasses.replace(part, copies=2 * part.copies)
            plan.parts.append(dataclasses.replace(
                part, live=head, copy=part.copy + part.copies, copies=2 * part.copies))


def _probe(context: Context, plan: BindingPlan, unplaced: list[Stored],
           reasons: dict[str, str], twins: Twins) -> None:
    prober = Prober(plan.lives, plan.parts, context.topology, context.config, twins,
                    context.tensors)
    for name, found in prober.find(unplaced).items():
        if isinstance(found, str):
            reasons[name] = f"{reasons.get(name, NO_RULE)}, and {found}"
        else:
            reasons.pop(name, None)
            plan.parts += found
            plan.probed.append(name)


def _refuse(reasons: dict[str, str], what: str) -> None:
    if not reasons:
        return
    named = [f"'{name}': {why}" for name, why in sorted(reasons.items())[:NAMED_MAX]]
    if len(reasons) > NAMED_MAX:
        named.append(f"and {len(reasons) - NAMED_MAX} more")
    raise UnsupportedError(f"{len(reasons)} tensor(s) {what}: " + "; ".join(named))


def _check_widened(plan: BindingPlan) -> None:
    """F32 that was made of BF16 has zeros in its lower half; anything else is not the checkpoint's
    value, and would stay in it."""
    for part in plan.parts:
        if widened(part.stored.dtype, part.live.dtype) and (integers(part.live) & 0xFFFF).any():
            raise UnsupportedError(f"'{part.live.name}' holds F32 with more bits than the BF16 of "
                                   f"the checkpoint's '{part.name}'")
