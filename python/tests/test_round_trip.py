# SPDX-License-Identifier: Apache-2.0
"""From a trainer's tensors to live weights: bound tensors and a segment, numpy and torch."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

import segue
from python_support import copy_of, make_model, same_bytes, step


def test_bound_tensors_follow_the_trainer(tmp_path):
    model = make_model()
    live = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    assert publisher.version is None
    assert publisher.baseline_bytes >= sum(array.nbytes for array in model.values())
    with segue.Receiver(tmp_path / "store") as receiver:
        for name, array in live.items():
            receiver.bind(name, array)
        assert receiver.open().status.version == 0
        for number in (1, 2, 3):
            step(model, number)
            report = publisher.publish(model)
            assert (report.base_version, report.target_version) == (number - 1, number)
            assert report.committed and report.payload_bytes > 0
            assert publisher.version == number
        update = receiver.update()
        assert (update.base_version, update.target_version, update.steps) == (0, 3, 3)
        assert same_bytes(live, model)
        status = receiver.status
        assert status.ready and status.version == 3 and status.digest == report.target_digest
        assert receiver.versions() == [1, 2, 3]


def test_step_and_update_to_a_version(tmp_path):
    model = make_model()
    live = copy_of(model)
    versions = {}
    publisher = segue.Publisher(tmp_path / "store", lineage="run", base=list(model.items()))
    receiver = segue.Receiver(str(tmp_path / "store"), lineage="run")
    for name, array in live.items():
        receiver.bind(name, array)
    for number in (5, 9):
        step(model, number)
        assert publisher.publish(model.items(), step=number).target_version == number
        versions[number] = copy_of(model)
    for number in (5, 9):
        assert receiver.update(to=number).target_version == number
        with receiver.step():
            assert same_bytes(live, versions[number])
    receiver.close()


def test_tensors_one_by_one(tmp_path):
    model = make_model()
    publisher = segue.Publisher(tmp_path / "store", base=model)
    before = copy_of(model)
    step(model, 1)
    publisher.begin()
    buffer = np.empty(100_000, np.uint64)
    for name, array in model.items():
        if name == "layer.1.weight":
            model[name] = before[name]
            publisher.put_unchanged(name)
            continue
        gathered = buffer[: array.size].view(array.dtype)[: array.size].reshape(array.shape)
        gathered[...] = array
        publisher.put(name, gathered)
    assert publisher.commit().target_version == 1
    receiver = segue.Receiver(tmp_path / "store")
    for name, array in before.items():
        receiver.bind(name, array)
    receiver.update()
    assert same_bytes(before, model)
    receiver.close()


def test_torch_tensors(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    generator = torch.Generator().manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 4)).to(torch.bfloat16)
    other = {"f8": torch.randint(0, 255, (33,), generator=generator, dtype=torch.uint8)
             .view(torch.float8_e4m3fn), "mask": torch.tensor([True, False])}
    trained = {**dict(model.named_parameters()), **other}
    live = {name: tensor.detach().clone() for name, tensor in trained.items()}
    publisher = segue.Publisher(tmp_path / "store", base=trained)
    receiver = segue.Receiver(tmp_path / "store")
    for name, tensor in live.items():
        receiver.bind(name, tensor)
    receiver.open()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.view(-1)[::17] *= 1.01
    other["mask"].logical_not_()
    publisher.publish(trained)
    receiver.update()
    for name, tensor in trained.items():
        assert torch.equal(live[name].view(torch.uint8), tensor.detach().view(torch.uint8)), name
    receiver.close()


@contextlib.contextmanager
def served(tmp_path, model):
    """A segment with version 0 of `model`, its publisher and its receiver."""
    publisher = segue.Publisher(tmp_path / "store", base=model)
    step(model, 1)
    publisher.publish(model)
    subprocess.run([sys.executable, "-m", "segue", "verify", "--help"], check=True,
                   stdout=subprocess.DEVNULL)
    checkpoint = write_checkpoint(tmp_path / "checkpoint", model)
    name = f"python-test-{os.getpid()}"
    receiver = segue.Receiver(tmp_path / "store", name=name, checkpoint=checkpoint).open()
    try:
        yield name, publisher, receiver
    finally:
        receiver.close()
        segue.remove_segment(name)


def write_checkpoint(directory, model):
    """`model` as one safetensors file."""
    import json
    directory.mkdir()
    names = {"float16": "F16", "float32": "F32", "float64": "F64", "uint8": "U8"}
    header, at = {}, 0
    for name, array in model.items():
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.tobytes() for array in model.values())
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return directory


def test_attached_weights_alias_the_segment(tmp_path):
    model = make_model()
    with served(tmp_path, model) as (name, publisher, receiver):
        weights = segue.attach(name)
        assert list(weights) == sorted(model) and len(weights) == len(model)
        assert "scale" in weights and "nobody" not in weights
        with weights.step() as current:
            assert (current.version, current.serving) == (1, True)
            arrays = weights.tensors("numpy")
            assert same_bytes(arrays, {key: model[key] for key in sorted(model)})
        step(model, 2)
        publisher.publish(model)
        receiver.update()
        with weights.step(timeout=5) as current:
            assert current.version == 2 and current.lineage == "default"
            assert same_bytes(arrays, {key: model[key] for key in sorted(model)})
        with pytest.raises(ValueError):
            arrays["scale"][...] = 1
        torch = pytest.importorskip("torch", reason="torch is not installed")
        tensors = weights.tensors("torch")
        assert tensors["layer.0.weight"].data_ptr() == weights["layer.0.weight"].address
        assert torch.equal(tensors["layer.0.weight"], torch.from_numpy(model["layer.0.weight"]))


def test_the_command_line_is_in_the_package():
    result = subprocess.run([sys.executable, "-m", "segue", "--version"], capture_output=True,
                            text=True, check=True)
    assert segue.__version__ in result.stdout
