# SPDX-License-Identifier: Apache-2.0
"""Segue: bit-exact weight deltas for reinforcement learning and inference engines.

    publisher = segue.Publisher("dir:/mnt/run7", base=model.state_dict())
    publisher.publish(model.named_parameters(), step=step)

    weights = segue.attach("engine-0")            # Weights that `segue serve` keeps.
    with weights.step(): logits = forward(weights)

    receiver = segue.Receiver("dir:/mnt/run7")    # Weights of this process.
    receiver.bind(name, tensor)
    receiver.update(to=7)

`segue.ReceiverGroup` moves several lineages of one engine together, a policy and its draft model.
`segue.distributed` is for trainers of several ranks (torch.distributed).
docs/python.md tells more; `python -m segue` is the command line.
"""

from segue._core import (EngineVersion, PauseCounts, PublishReport, ReceiverCounts, ReceiverStatus,
                         SharedTensor, UpdateReport, View, __version__)
from segue.errors import (CorruptionError, Error, InternalError, InvalidArgumentError,
                          NotFoundError, ResourceExhaustedError, TaintedError, UnavailableError,
                          UnsupportedError, VersionMismatchError)
from segue.gpu_memory import GpuShare, map_gpu_memory, share_gpu_memory
from segue.group import ReceiverGroup, step_all
from segue.publisher import Publisher
from segue.receiver import Receiver, engine_hooks, http_hooks, local_ranks
from segue.tensors import TensorSpec
from segue.views import (blocked_scale_views, box_view, column_slice, row_slice,
                         transposed_view)
from segue.weights import Weights, attach, remove_segment

__all__ = [
    "CorruptionError", "EngineVersion", "Error", "GpuShare", "InternalError",
    "InvalidArgumentError", "NotFoundError", "PauseCounts", "PublishReport", "Publisher",
    "Receiver", "ReceiverCounts", "ReceiverGroup", "ReceiverStatus", "ResourceExhaustedError",
    "SharedTensor", "TaintedError", "TensorSpec", "UnavailableError", "UnsupportedError",
    "UpdateReport", "VersionMismatchError", "View", "Weights", "__version__", "attach",
    "blocked_scale_views", "box_view", "column_slice", "engine_hooks", "http_hooks", "local_ranks",
    "map_gpu_memory", "remove_segment", "row_slice", "share_gpu_memory", "step_all",
    "transposed_view",
]
