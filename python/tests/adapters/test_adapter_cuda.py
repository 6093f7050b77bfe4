# SPDX-License-Identifier: Apache-2.0
"""Engines whose parameters are in a GPU's memory, on the fake driver: bound by the tables, found by
their bytes through a copy, updated in place. Not torch's CUDA tensors but stand-ins for them: no
build of torch for GPUs is here (docs/engines.md says what was not run)."""

import fake_cuda_support
import model_families as families
import numpy
import pytest
import torch
from engine_support import Run, all_well, thread_ranks, together

from segue import InvalidArgumentError, ResourceExhaustedError, UnsupportedError
from segue.adapters.engine import EngineReceiver

pytestmark = pytest.mark.skipif(not fake_cuda_support.LIBRARY.exists(), reason="built without CUDA")


class CudaTensor:
    """What adapters use of a tensor of torch that a GPU has; its memory is out of reach."""

    layout, device = torch.strided, "cuda:0"

    def __init__(self, gpu, tensor):
        self._kept = tensor.detach().contiguous()
        bits = numpy.frombuffer(families.raw(self._kept), numpy.uint8)
        self._memory = fake_cuda_support.FakeGpuTensor(gpu, bits)
        self.dtype, self.shape = tensor.dtype, tuple(tensor.shape)
        self.copies = 0

    def stride(self):
        return self._kept.stride()

    def element_size(self):
        return self._kept.element_size()

    def data_ptr(self):
        return self._memory.address

    def untyped_storage(self):
        return self._memory

    def detach(self):
        return self

    def cpu(self):
        self.copies += 1
        return torch.from_numpy(self._memory.numpy()).view(self.dtype).reshape(self.shape)

    def free(self):
        self._memory.free()


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("SEGUE_CUDA_DRIVER", str(fake_cuda_support.LIBRARY))
    gpu, made = fake_cuda_support.FakeGpu(), []

    def put(lives):
        made.append({name: CudaTensor(gpu, tensor) for name, tensor in lives.items()})
        return made[-1]

    yield put
    for lives in made:
        for tensor in lives.values():
            tensor.free()
    gpu.close()


def on_host(lives):
    return {name: tensor.cpu() for name, tensor in lives.items()}


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("family", ["llama", "qwen2-own-head", "qwen3-moe", "glm4-moe"])
def test_an_engine_on_the_gpu_takes_versions(tmp_path, gpu, family, size):
    run = Run(tmp_path, family)
    run.publish()
    engines = [run.engine(rank, size) for rank in range(size)]
    lives = [gpu(run.load(engine)) for engine in engines]
    receivers = [EngineReceiver(one, run.options_of(), ranks) for one, ranks in zip(
        lives, thread_ranks(size), strict=True)]
    assert all_well(together([r.open for r in receivers])) == [0] * size
    all_well(together([r.update for r in receivers]))
    for engine, one in zip(engines, lives, strict=True):
        run.expect(on_host(one), engine, 1)
    for receiver in receivers:
        receiver.close()


def test_what_no_table_knows_is_found_through_one_copy_each(tmp_path, gpu):
    run = Run(tmp_path, "qwen3-moe")
    run.publish()

    def swapped(lives):
        return {name: tensor.roll(tensor.shape[1] // 2, 1) if "w13" in name else tensor
                for name, tensor in lives.items()}

    lives = gpu(swapped(run.load(run.engine())))
    receiver = EngineReceiver(lives, run.options_of())
    receiver.open()
    assert len(receiver.probed) == 16
    assert max(tensor.copies for tensor in lives.values()) < 40
    receiver.update()
    expected = swapped(run.load(run.engine(), 1))
    for name, tensor in on_host(lives).items():
        assert families.raw(tensor) == families.raw(expected[name]), name
    receiver.close()


def test_a_replaced_tensor_on_the_gpu_is_noticed(tmp_path, gpu):
    run = Run(tmp_path, "llama")
    run.publish()
    lives = dict(gpu(run.load(run.engine())))
    receiver = EngineReceiver(lives, run.options_of())
    receiver.open()
    lives["model.norm.weight"] = gpu({"x": torch.ones(32, dtype=torch.bfloat16)})["x"]
    with pytest.raises(InvalidArgumentError, match="model.norm.weight"):
        receiver.update()
    receiver.close()


def test_parameters_on_two_devices_are_named(tmp_path, gpu):
    run = Run(tmp_path, "llama")
    run.publish()
    lives = run.load(run.engine())
    mixed = {**lives, **gpu({"model.norm.weight": lives["model.norm.weight"]})}
    with pytest.raises(InvalidArgumentError, match="is on device"):
        EngineReceiver(mixed, run.options_of()).open()
    with pytest.raises(UnsupportedError, match="device 'meta'"):
        EngineReceiver({n: t.to("meta") for n, t in lives.items()}, run.options_of()).open()


def test_options_of_the_device_reach_it(tmp_path, gpu):
    run = Run(tmp_path, "llama")
    run.publish()
    with pytest.raises(ResourceExhaustedError, match="memory_max"):
        EngineReceiver(gpu(run.load(run.engine())), run.options_of(device_memory=1)).open()
    with pytest.raises(InvalidArgumentError, match="abacus"):
        EngineReceiver(gpu(run.load(run.engine())), run.options_of(decoder="abacus")).open()
    lives = gpu(run.load(run.engine()))
    receiver = EngineReceiver(lives, run.options_of(keep_slots=False, decoder="processor"))
    receiver.open()
    receiver.update()
    run.expect(on_host(lives), run.engine(), 1)
    receiver.close()
