# SPDX-License-Identifier: Apache-2.0
"""Distributed: the publisher of a trainer whose tensors lie on several ranks (torch.distributed).

    publisher = segue.distributed.Publisher("s3://bucket/run7", model, lineage="run7")
    publisher.publish(step)                      # on every rank, after the optimizer's step

- `publisher`: Publisher, what a trainer uses.
- `partitions`: what one rank holds of a tensor: plain tensors, DTensors, `Partition`.
- `sharing`: which rank owns which tensor.
- `meeting`: how ranks agree, and find out who is missing.
- `exchange`: how partitions come to their tensor's owner.

It needs torch, which `import segue` does not. docs/python.md tells more.
"""

from .partitions import Partition
from .publisher import Publisher

__all__ = ["Partition", "Publisher"]
