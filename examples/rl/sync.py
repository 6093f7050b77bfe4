# SPDX-License-Identifier: Apache-2.0
"""Two ways to bring the trainer's weights to the sampler, with the same calls: Segue, and a
broadcast of all weights, which the sampler stops for. Each has a trainer's and a sampler's side."""

import contextlib
import time

import torch
import torch.distributed as distributed

import segue


class SegueTrainer:
    """Publishes every step; knows of no sampler."""

    def __init__(self, setup):
        self.publisher = segue.Publisher(setup.store, lineage="rl", base=setup.base, threads=1)

    def send(self, weights, step):
        report = self.publisher.publish(weights, step=step)
        elements = sum(weight.numel() for weight in weights.values())
        return {"density": report.changed_elements / elements,
                "payload_bytes": report.payload_bytes}

    def close(self):
        self.publisher.close()


class SegueSampler:
    """Weights in shared memory, which `segue serve` keeps in step with the store; the model's
    parameters are those very bytes."""

    def __init__(self, setup, model):
        self.weights = segue.attach(setup.segment, timeout=60)
        for name, parameter in model.named_parameters():
            parameter.data = self.weights.torch(name)
        self.waited_s = 0.0

    @contextlib.contextmanager
    def step(self):
        """Around a forward step; gives the version that it reads."""
        begin = time.perf_counter()
        with self.weights.step() as version:
            self.waited_s += time.perf_counter() - begin
            yield version.version

    def close(self):
        pass


def _join(setup, rank):
    distributed.init_process_group("gloo", init_method=f"file://{setup.rendezvous}", rank=rank,
                                   world_size=2)


class BroadcastTrainer:
    """All weights as one buffer, to a sampler that waits for them."""

    def __init__(self, setup):
        self.offered = setup.offered
        _join(setup, rank=0)

    def send(self, weights, step):
        buffer = torch.cat([weight.view(-1) for weight in weights.values()])
        self.offered.value = step
        distributed.broadcast(buffer, src=0)
        return {"density": 1.0, "payload_bytes": buffer.nbytes}

    def close(self):
        distributed.destroy_process_group()


class BroadcastSampler:
    """Stops between two forward steps when the trainer offers weights, and takes all of them."""

    def __init__(self, setup, model):
        self.offered, self.version = setup.offered, 0
        self.parameters = list(model.parameters())
        size = sum(parameter.numel() for parameter in self.parameters)
        self.buffer = torch.empty(size, dtype=torch.bfloat16)
        self.waited_s = 0.0
        _join(setup, rank=1)

    @contextlib.contextmanager
    def step(self):
        if self.offered.value > self.version:
            begin = time.perf_counter()
            self.version = self.offered.value
            self._take()
            self.waited_s += time.perf_counter() - begin
        yield self.version

    @torch.no_grad()
    def _take(self):
        distributed.broadcast(self.buffer, src=0)
        offset = 0
        for parameter in self.parameters:
            part = self.buffer[offset:offset + parameter.numel()]
            parameter.copy_(part.view_as(parameter))
            offset += parameter.numel()

    def close(self):
        distributed.destroy_process_group()


TRAINERS = {"segue": SegueTrainer, "broadcast": BroadcastTrainer}
SAMPLERS = {"segue": SegueSampler, "broadcast": BroadcastSampler}
