# SPDX-License-Identifier: Apache-2.0
"""Ranks: agreement among threads, and over a gloo group of real processes."""

import os
import pathlib
import socket
import subprocess
import sys

import model_families as families
import pytest
from engine_support import Run, all_well, thread_ranks, together

from segue import InvalidArgumentError, UnavailableError
from segue.adapters.ranks import Ranks


def test_one_rank_needs_nobody():
    ranks = Ranks()
    ranks.agree(None, "this")
    with pytest.raises(KeyError):
        ranks.agree(KeyError("x"), "this")
    assert ranks.from_first(7) == 7 and ranks.all(True) and not ranks.all(False)


def test_several_ranks_need_sums():
    with pytest.raises(InvalidArgumentError):
        Ranks(0, 2)
    with pytest.raises(InvalidArgumentError):
        Ranks(2, 2, list, list)


def test_ranks_agree_or_fail_together():
    ranks = thread_ranks(3)
    all_well(together([lambda r=r: r.agree(None, "binding") for r in ranks]))
    results = together([lambda r=r: r.agree(
        ValueError("no such höhe" + "x" * 1000) if r.rank == 1 else None, "binding")
        for r in ranks])
    assert isinstance(results[1], ValueError)
    for result in (results[0], results[2]):
        assert isinstance(result, UnavailableError)
        assert "rank 1: ValueError: no such höhe" in str(result)
    assert together([lambda r=r: r.from_first(r.rank + 5) for r in ranks]) == [5, 5, 5]
    assert together([lambda r=r: r.all(r.rank != 2) for r in ranks]) == [False] * 3


def test_words_of_receivers_are_added_modulo_two_to_the_64():
    ranks = thread_ranks(2)
    words = [bytearray((2**64 - 1 - r).to_bytes(8, "little") + bytes(8)) for r in range(2)]
    all_well(together([lambda r=r: r.receiver_words(words[r.rank]) for r in ranks]))
    assert [int.from_bytes(w[:8], "little") for w in words] == [2**64 - 3] * 2


WORKER = """
import sys
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import model_families as families
from segue import UnavailableError
from segue.adapters.engine import EngineOptions, EngineReceiver
from segue.adapters.ranks import torch_ranks
import pathlib, time
torch.set_num_threads(1)
family, store, checkpoint, mark = sys.argv[2:6]
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
config, tensors, options = families.FAMILIES[family]()
engine = families.Engine(rank, size, **options)
lives = families.load(config, tensors, engine)
ranks = torch_ranks(dist.group.WORLD, 60)
assert ranks.sum_words([2**64 - 1, rank]) == [(2**64 - 1) * size % 2**64, size * (size - 1) // 2]
receiver = EngineReceiver(lives, EngineOptions(store=store, lineage="run", checkpoint=checkpoint,
                                               threads=1).completed(), ranks)
assert receiver.open() == 0
assert receiver.update()["version"] == 1
dist.barrier()
if rank == 0:
    pathlib.Path(mark).touch()
    while not pathlib.Path(mark + ".go").exists():
        time.sleep(0.01)
dist.barrier()
assert receiver.prepare() == 2
receiver.apply(2)
after = families.changed(families.changed(tensors, 1), 2)
for name, tensor in families.load(config, after, engine).items():
    assert families.raw(lives[name]) == families.raw(tensor), name
if rank == 1:
    lives["model.norm.weight"] = lives["model.norm.weight"].clone()
try:
    receiver.update()
    raise AssertionError("went on with a parameter that was replaced")
except UnavailableError as error:
    assert rank != 1 and "rank 1" in str(error) and "model.norm.weight" in str(error)
except Exception as error:
    assert rank == 1 and "model.norm.weight" in str(error), error
receiver.close()
dist.barrier()
dist.destroy_process_group()
print("rank", rank, "is well")
"""


@pytest.mark.parametrize("family", ["qwen3", "deepseek-sglang"])
def test_ranks_that_are_processes(tmp_path, family):
    run = Run(tmp_path, family)
    run.publish()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = str(pathlib.Path(families.__file__).parent)
    mark = str(tmp_path / "open")
    processes = [subprocess.Popen(
        [sys.executable, "-c", WORKER, here, family, run.store, str(run.directory), mark],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    try:
        while not os.path.exists(mark) and all(p.poll() is None for p in processes):
            pass_time()
        run.publish()
        pathlib.Path(mark + ".go").touch()
        outputs = [p.communicate(timeout=120)[0] for p in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (process, output) in enumerate(zip(processes, outputs, strict=True)):
        assert process.returncode == 0, output
        assert f"rank {rank} is well" in output


def pass_time():
    import time
    time.sleep(0.02)
