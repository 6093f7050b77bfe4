# SPDX-License-Identifier: Apache-2.0
"""Bindings: from the names of a checkpoint to the parameters of an engine.

Engines fuse, slice, pad and transpose what a checkpoint holds. `plan_bindings` says where each
tensor lies at one rank: by a table for each family of architectures, or by looking for its bytes.
What neither finds is named and refused. `bind_plan` gives a plan to a `segue.Receiver`, whose proof
at open is the judge: only bytes that are a version of the lineage, under these views, are ever
written. Tensors that are bit for bit alike in the base pass that proof the wrong way round; `twins`
says when they are bound all the same.
"""

from .bind import Shadows, bind_plan
from .checkpoint import Checkpoint, Stored
from .joined import Joined
from .placement import Axis, Live, Placement, byte_view, live_of
from .plan import BindingPlan, lives_of, plan_bindings
from .rules import Part
from .tables import ARCHITECTURES, Table, table_for
from .topology import Share, Topology
from .verify import differing

__all__ = [
    "ARCHITECTURES", "Axis", "BindingPlan", "Checkpoint", "Joined", "Live", "Part", "Placement",
    "Shadows", "Share", "Stored", "Table", "Topology", "bind_plan", "byte_view", "differing",
    "live_of", "lives_of", "plan_bindings", "table_for",
]
