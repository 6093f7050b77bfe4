# SPDX-License-Identifier: Apache-2.0
"""What tests of engines share: a store with a lineage, ranks as threads, models as modules."""

import contextlib
import threading

import model_families as families
import torch

import segue
from segue.adapters.bindings.rules import DERIVED
from segue.adapters.engine import EngineOptions, EngineReceiver
from segue.adapters.ranks import MODULUS, Ranks


class Run:
    """A trainer's side: a store, a base checkpoint on disk and the versions published so far."""

    def __init__(self, tmp_path, family, lineage="run"):
        self.config, self.base, self.options = families.FAMILIES[family]()
        self.directory = families.write_checkpoint(tmp_path / "base", self.base, self.config)
        self.store, self.lineage = f"dir:{tmp_path / 'store'}", lineage
        self.publisher = segue.Publisher(self.store, lineage=lineage, base=self.directory)
        self.versions = {0: self.base}

    def publish(self, tensors=None):
        tensors = tensors or families.changed(self.versions[max(self.versions)],
                                              len(self.versions))
        report = self.publisher.publish(tensors)
        self.versions[report.target_version] = tensors
        return report.target_version

    def engine(self, rank=0, size=1, **options):
        return families.Engine(rank, size, **{**self.options, **options})

    def load(self, engine, version=0):
        return families.load(self.config, self.versions[version], engine)

    def options_of(self, **options):
        return EngineOptions(store=self.store, lineage=self.lineage,
                             checkpoint=str(self.directory), threads=1, **options).completed()

    def expect(self, lives, engine, version):
        """All bytes are those that a loader makes of `version`."""
        expected = self.load(engine, version)
        assert lives.keys() == expected.keys()
        for name, tensor in lives.items():
            assert families.raw(tensor) == families.raw(expected[name]), (name, version)


def barrier_sum(count, timeout_s=60):
    """A way to add up over `count` threads; breaks for all when one does not come."""
    barrier, lock, words = threading.Barrier(count, timeout=timeout_s), threading.Lock(), {}

    def add(mine):
        with lock:
            words[threading.get_ident(), len(words)] = list(mine)
        barrier.wait()
        summed = [sum(column) % MODULUS for column in zip(*words.values(), strict=True)]
        if barrier.wait() == 0:
            words.clear()
        barrier.wait()
        return summed

    return add


def thread_ranks(size):
    if size == 1:
        return [Ranks()]
    sums = barrier_sum(size), barrier_sum(size)
    return [Ranks(rank, size, *sums) for rank in range(size)]


def together(functions):
    """Calls each in a thread of its own; results in order, exceptions among them."""
    results = [None] * len(functions)

    def call(k):
        try:
            results[k] = functions[k]()
        except Exception as error:
            results[k] = error

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def all_well(results):
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


class Cluster:
    """An engine whose ranks are threads: `lives` and `receivers` by rank."""

    def __init__(self, run, size, version=0, receiving=None, **options):
        self.run = run
        self.engines = [run.engine(rank, size, **options) for rank in range(size)]
        self.lives = [run.load(engine, version) for engine in self.engines]
        self.receivers = [
            EngineReceiver(lives, run.options_of(**receiving or {}), ranks)
            for lives, ranks in zip(self.lives, thread_ranks(size), strict=True)]

    def open(self):
        """Opens all ranks and brings them to the newest version."""
        all_well(self.each(lambda r: r.open()))
        all_well(self.each(lambda r: r.update()))

    def each(self, call):
        return together([lambda r=receiver: call(r) for receiver in self.receivers])

    def expect(self, version):
        for lives, engine in zip(self.lives, self.engines, strict=True):
            self.run.expect(lives, engine, version)

    def bytes(self):
        return [{n: families.raw(t) for n, t in lives.items()} for lives in self.lives]

    def close(self):
        for receiver in self.receivers:
            receiver.close()


@contextlib.contextmanager
def cluster(*args, **options):
    made = Cluster(*args, **options)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def one_behind(tmp_path, family, ranks, **options):
    """A run and an engine that serves version 1 while version 2 is there to be taken."""
    run = Run(tmp_path, family)
    run.publish()
    with cluster(run, ranks, **options) as engine:
        engine.open()
        run.publish()
        yield run, engine


def module_of(lives, path=""):
    """A torch module with these parameters."""
    model = torch.nn.Module()
    for name, tensor in lives.items():
        *folders, leaf = name.split(".")
        module = model
        for folder in folders:
            if not hasattr(module, folder):
                module.add_module(folder, torch.nn.Module())
            module = getattr(module, folder)
        if leaf in DERIVED:
            setattr(module, leaf, tensor)
        else:
            module.register_parameter(leaf, torch.nn.Parameter(tensor, requires_grad=False))
    model.config = type("Config", (), {"_name_or_path": path})()
    return model


class Source:
    """What vLLM's trainers read a model from, as far as ours asks."""

    def __init__(self, tensors):
        self.tensors, self.passes = tensors, 0

    def iter_full(self):
        self.passes += 1
        yield from self.tensors.items()
