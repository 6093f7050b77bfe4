# SPDX-License-Identifier: Apache-2.0
"""Weights in a GPU's memory from Python, on the fake driver: published and bound through DLPack,
updated in place, refused where they are on two devices or on none that is there."""

import hashlib
import multiprocessing
import pathlib
import pickle

import pytest

import segue
from fake_cuda_support import LIBRARY, FakeGpu, FakeGpuTensor, on_gpu
from python_support import bound, copy_of, make_model, same_bytes, step

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without CUDA")


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setenv("SEGUE_CUDA_DRIVER", str(LIBRARY))
    monkeypatch.setenv("SEGUE_NVCOMP", str(LIBRARY.with_name("libsegue_fake_nvcomp.so")))
    gpu = FakeGpu()
    yield gpu
    gpu.close()


@pytest.fixture
def run(tmp_path):
    """A store with versions 0 to 3, and the bytes of each."""
    store = f"dir:{tmp_path}/store"
    model = make_model()
    versions = [copy_of(model)]
    with segue.Publisher(store, base=model) as publisher:
        for seed in range(3):
            step(model, seed)
            publisher.publish(model)
            versions.append(copy_of(model))
    return store, versions


def arrays_of(tensors):
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def test_versions_in_place(gpu, run):
    store, versions = run
    with on_gpu(gpu, versions[0]) as tensors:
        with bound(store, tensors) as receiver:
            for version in (1, 3):
                report = receiver.update(to=version)
                assert report.target_version == version
                assert same_bytes(arrays_of(tensors), versions[version])
                with receiver.step():
                    pass
            assert receiver.status.version == 3


@pytest.mark.parametrize("decoder", ("multiprocessors", "nvcomp", "processor"))
def test_a_decoder_by_name_and_a_budget(gpu, run, decoder):
    store, versions = run
    with on_gpu(gpu, versions[0]) as tensors:
        with bound(store, tensors, decoder=decoder, device_memory=64 << 20) as receiver:
            report = receiver.update()
            assert receiver.status.decoder == decoder
            assert 0 < report.device_bytes <= 64 << 20
        assert same_bytes(arrays_of(tensors), versions[3])


def test_device_options_that_cannot_be(gpu, run, monkeypatch):
    store, versions = run
    monkeypatch.setenv("SEGUE_NVCOMP", "/nonexistent/libnvcomp.so.6")
    with on_gpu(gpu, versions[0]) as tensors:
        with pytest.raises(segue.UnsupportedError, match="engine"):
            bound(store, tensors, decoder="engine").open()
        with pytest.raises(segue.UnsupportedError, match="no nvCOMP: /nonexistent"):
            bound(store, tensors, decoder="nvcomp").open()
        with pytest.raises(segue.InvalidArgumentError, match="abacus"):
            bound(store, tensors, decoder="abacus").open()
        with pytest.raises(segue.InvalidArgumentError, match="device_memory"):
            segue.Receiver(store, device_memory=-1)
        receiver = bound(store, tensors, device_memory=1000)
        with pytest.raises(segue.ResourceExhaustedError, match="memory_max"):
            receiver.update()
        receiver.close()
        assert same_bytes(arrays_of(tensors), versions[0])


def test_a_group_on_the_gpu(gpu, run):
    store, versions = run
    with on_gpu(gpu, versions[0]) as tensors:
        with segue.ReceiverGroup([bound(store, tensors)]) as group:
            group.update()
            assert same_bytes(arrays_of(tensors), versions[3])


def test_weights_that_are_no_version(gpu, run):
    store, versions = run
    wrong = copy_of(versions[0])
    wrong["scale"] += 1
    with on_gpu(gpu, wrong) as tensors:
        with pytest.raises(segue.VersionMismatchError):
            bound(store, tensors).open()
        assert same_bytes(arrays_of(tensors), wrong)


def test_a_driver_that_fails_while_preparing_leaves_the_old_version(gpu, run):
    store, versions = run
    with on_gpu(gpu, versions[0]) as tensors:
        with bound(store, tensors) as receiver:
            receiver.open()
            gpu.fail("cuMemcpyHtoDAsync_v2")
            with pytest.raises(segue.Error, match="cuMemcpyHtoDAsync"):
                receiver.update()
            assert same_bytes(arrays_of(tensors), versions[0])
            receiver.update()
            assert same_bytes(arrays_of(tensors), versions[3])


def test_tensors_on_two_devices(gpu, run):
    store, versions = run
    with on_gpu(gpu, versions[0]) as tensors:
        receiver = segue.Receiver(store)
        receiver.bind("embed.weight", tensors["embed.weight"])
        with pytest.raises(segue.InvalidArgumentError,
                           match="'scale': it is on device 'cpu', those before on 'cuda:0'"):
            receiver.bind("scale", versions[0]["scale"])
        other = FakeGpuTensor(gpu, versions[0]["scale"], ordinal=1)
        with pytest.raises(segue.InvalidArgumentError, match="'cuda:1', those before on 'cuda:0'"):
            receiver.bind("scale", other)
        other.free()


def test_memory_that_is_not_the_devices(gpu, run):
    store, versions = run

    class Lies(FakeGpuTensor):
        """Says that memory of the host is the GPU's."""
        def __init__(self, array):
            super().__init__(gpu, array)
            self._managed.data = array.ctypes.data

    with on_gpu(gpu, versions[0]) as tensors:
        lie = Lies(versions[0]["layer.0.weight"])
        with pytest.raises(segue.InvalidArgumentError, match="layer.0.weight"):
            bound(store, {**tensors, "layer.0.weight": lie}).open()
        lie.free()


def test_a_device_that_is_not_there(gpu, run, monkeypatch):
    store, versions = run
    absent = {name: FakeGpuTensor(gpu, array, ordinal=7) for name, array in versions[0].items()}
    with pytest.raises(segue.UnsupportedError, match="no device 'cuda:7': the driver has 1"):
        bound(store, absent).open()
    monkeypatch.setenv("SEGUE_CUDA_DRIVER", "/nonexistent/libcuda.so")
    with pytest.raises(segue.UnsupportedError, match="no CUDA driver"):
        bound(store, absent).open()
    for tensor in absent.values():
        tensor.free()


def _engine(channel, weights, target):
    """Another process: shares its tensors, and says in the end whether they are `target`."""
    gpu = FakeGpu()
    with on_gpu(gpu, weights) as tensors:
        channel.send({name: segue.share_gpu_memory(tensor) for name, tensor in tensors.items()
                      if tensor.nbytes})
        channel.recv()
        channel.send(same_bytes(arrays_of(tensors), target))
    gpu.close()


def test_weights_of_another_process(gpu, run):
    store, versions = run
    here, there = multiprocessing.Pipe()
    # Not forked: a fork would have this process's driver.
    engine = multiprocessing.get_context("spawn").Process(
        target=_engine, args=(there, versions[0], versions[3]), daemon=True)
    engine.start()
    there.close()
    tensors = {name: segue.map_gpu_memory(share) for name, share in here.recv().items()}
    with on_gpu(gpu, {"empty": versions[0]["empty"]}) as rest:
        with bound(store, {**tensors, **rest}, close_gate=lambda seconds: None,
                   open_gate=lambda: None) as receiver:
            assert receiver.update().target_version == 3
    here.send("look")
    assert here.recv()
    engine.join(30)
    assert engine.exitcode == 0
    tensors.clear()


def test_what_cannot_be_shared_or_mapped(gpu):
    model = make_model()
    with pytest.raises(segue.InvalidArgumentError, match="in the CPU's memory"):
        segue.share_gpu_memory(model["scale"])
    with on_gpu(gpu, model) as tensors:
        with pytest.raises(segue.InvalidArgumentError, match="is empty"):
            segue.share_gpu_memory(tensors["empty"])
        share = segue.share_gpu_memory(tensors["layer.0.weight"])
        assert pickle.loads(pickle.dumps(share)) == share
        assert (share.dtype, share.shape, share.device) == ("F16", (300, 200), "cuda:0")
    with pytest.raises(segue.InvalidArgumentError, match="a GpuShare is needed, not a str"):
        segue.map_gpu_memory("share")
    with pytest.raises(segue.UnsupportedError, match="'cuda:3'"):
        segue.map_gpu_memory(share, "cuda:3")
    with pytest.raises(segue.Error):  # It was freed.
        segue.map_gpu_memory(share)


def publish_steps(store, base, put, **options):
    """Three versions of the model whose tensors `put` gives; what the store then holds."""
    model = make_model()
    with segue.Publisher(store, base=base, chunk_size=65536, **options) as publisher:
        for seed in range(3):
            step(model, seed)
            publisher.publish(put(model))
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in pathlib.Path(store).rglob("*") if path.is_file()}


@pytest.mark.parametrize("on_host", [False, True], ids=["baseline on the gpu", "on the host"])
@pytest.mark.parametrize("profile", ["sparse-zstd", "lz4-zstd"])
def test_what_a_gpu_publishes_is_what_the_host_does(gpu, tmp_path, on_host, profile):
    wanted = publish_steps(tmp_path / "host", make_model(), lambda model: model, profile=profile)
    with on_gpu(gpu, make_model()) as tensors:
        def put(model):
            for name, array in model.items():
                gpu.write(tensors[name].address, array)
            return tensors

        found = publish_steps(tmp_path / "gpu", tensors, put, profile=profile,
                              baseline_on_host=on_host)
    assert found == wanted and len(found) > 5


def test_a_gpus_publisher_takes_its_own_memory_alone(gpu, tmp_path):
    model = make_model()
    with on_gpu(gpu, model) as tensors:
        mixed = {**tensors, "layer.0.weight": model["layer.0.weight"]}
        message = "tensor 'layer.0.weight': it is on device 'cpu', and the publisher's .* 'cuda:0'"
        with pytest.raises(segue.InvalidArgumentError, match=message):
            segue.Publisher(tmp_path, base=mixed)
        with segue.Publisher(tmp_path, base=tensors) as publisher:
            with pytest.raises(segue.InvalidArgumentError, match=message):
                publisher.publish(mixed)
            publisher.begin()
            with pytest.raises(segue.InvalidArgumentError, match=message):
                publisher.put("layer.0.weight", model["layer.0.weight"])
            publisher.discard()
            assert publisher.publish(tensors).target_version == 1
        with segue.Publisher(tmp_path, base=model) as publisher:
            with pytest.raises(segue.InvalidArgumentError, match="device 'cuda:0', and .* 'cpu'"):
                publisher.publish(tensors)
        with pytest.raises(segue.InvalidArgumentError, match="device 'cuda:0', and .* 'cpu'"):
            segue.Publisher(tmp_path, base=tensors, device="cpu")
