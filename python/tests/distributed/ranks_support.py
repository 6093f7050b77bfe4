# SPDX-License-Identifier: Apache-2.0
"""What the tests of distributed publishers share: ranks as processes over gloo, and a model whose
bytes at each step follow from the step, so that every rank and the judge know them without talking.

Ranks are forked from a server that has torch imported already, as that takes seconds.
"""

import itertools
import multiprocessing
import os
import signal
import threading
import time

import torch
from torch import distributed as dist

import segue
import segue.distributed

DEADLINE = 60.0  # Of a whole test's ranks.

SHAPES = {
    "embed.weight": ((301, 24), torch.bfloat16),
    "layer.0.weight": ((64, 50), torch.float32),
    "layer.1.weight": ((7, 5, 12), torch.bfloat16),
    "layer.2.f8": ((33, 8), torch.float8_e4m3fn),
    "bias": ((13,), torch.float32),
    "mask": ((9,), torch.bool),
    "scale": ((), torch.float64),
    "empty": ((0, 4), torch.float32),
}


def full_model(step, shapes=None):
    """{name: tensor} after `step` steps."""
    shapes = shapes or SHAPES
    model = {}
    for number, (name, (shape, dtype)) in enumerate(shapes.items()):
        generator = torch.Generator().manual_seed(number)
        count = max(0, torch.Size(shape).numel()) * dtype.itemsize
        data = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
        if dtype == torch.bool:
            data &= 1
        for _ in range(step):
            changed = torch.rand(count, generator=generator) < 0.05
            data ^= changed.to(torch.uint8)
        model[name] = data.view(dtype).reshape(shape) if count else torch.zeros(shape, dtype=dtype)
    return model


def same_bytes(one, other):
    """Whether two tensors have the same bytes."""
    one, other = one.detach().contiguous(), other.detach().contiguous()
    return one.shape == other.shape and one.dtype == other.dtype and \
        one.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8))


def engine_reaches(store, step, since=0, shapes=None, base=None):
    """An engine at version `since` comes to `step`, bit for bit."""
    live = {name: tensor.clone() for name, tensor in (base or full_model(since, shapes)).items()}
    with segue.Receiver(store) as receiver:
        for name, tensor in live.items():
            receiver.bind(name, tensor)
        assert receiver.update(to=step).target_version == step
    wanted = full_model(step, shapes)
    return all(same_bytes(tensor, wanted[name]) for name, tensor in live.items())


def versions(store):
    """Numbers of the manifests in a directory store."""
    folder = os.path.join(store, "default", "versions")
    return sorted(int(name[:10]) for name in os.listdir(folder) if name.endswith(".json")) \
        if os.path.isdir(folder) else []


def open_publisher(store, tensors, **options):
    """With a small model's settings."""
    options = {"threads": 1, "chunk_size": 4096, "timeout": 20.0, **options}
    return segue.distributed.Publisher(store, tensors, **options)


def die():
    """As the kernel ends a process that has no memory left."""
    os.kill(os.getpid(), signal.SIGKILL)


def error_of(call, *arguments, **options):
    """"CLASS: message" of what a call raises; "" where it raises nothing."""
    try:
        call(*arguments, **options)
    except segue.Error as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _work(rank, count, port, function, arguments, answer):
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    try:
        answer.send(("returned", function(rank, *arguments)))
    except BaseException as error:
        answer.send(("raised", f"{type(error).__name__}: {error}"))
        raise
    answer.recv()  # Nobody is gone before all have said what they have to say.
    os._exit(0)


def run_ranks(count, function, *arguments):
    """Runs function(rank, *arguments) in `count` processes; what each returned, None for one that
    died. What one raised is raised."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ranks_support", "torch.distributed.fsdp",
                                    "torch.distributed.tensor.parallel"])
    # Here, as a launcher does it: it outlives any rank.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = [context.Pipe() for _ in range(count)]
    ranks = [context.Process(target=_work, args=(rank, count, store.port, function, arguments, end),
                             daemon=True) for rank, (_, end) in enumerate(pipes)]
    for rank in ranks:
        rank.start()
    for _, end in pipes:
        end.close()
    until = time.monotonic() + DEADLINE
    answers = []
    try:
        for pipe, _ in pipes:
            try:
                answers.append(pipe.recv() if pipe.poll(max(0, until - time.monotonic()))
                               else ("raised", "nothing came in time"))
            except EOFError:
                answers.append(("returned", None))
        for pipe, _ in pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
    finally:
        for rank in ranks:
            rank.join(5)
            rank.kill()
    raised = [f"rank {rank}: {text}" for rank, (kind, text) in enumerate(answers)
              if kind == "raised"]
    assert not raised, raised
    return [value for _, value in answers]


def in_threads(count, function):
    """function(rank) in as many threads: what each returned, or the exception that it raised."""
    results = [None] * count

    def work(rank):
        try:
            results[rank] = function(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    return results


def cut(tensor, dim, pieces):
    """The tensor's parts along `dim`, as torch.chunk cuts, with empty ones to make up the number;
    each with its offset."""
    parts = list(torch.chunk(tensor, pieces, dim))
    parts += [tensor.narrow(dim, 0, 0)] * (pieces - len(parts))
    begins = itertools.accumulate([0] + [part.shape[dim] for part in parts[:-1]])
    return [(part, tuple(begin if d == dim else 0 for d in range(tensor.dim())))
            for part, begin in zip(parts, begins)]
