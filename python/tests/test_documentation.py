# SPDX-License-Identifier: Apache-2.0
"""What a stranger reads first: every public name has a text, and every block of Python in the
documents is run as it stands, in a world where the names that it takes from its reader are there: a
model, a trainer's step, a store at its URL. A block that is not in the table below fails, and so
does an entry without a block."""

import contextlib
import inspect
import json
import os
import pathlib
import re

import pytest
from http_support import serving

import segue

torch = pytest.importorskip("torch", reason="the documents speak of torch's models")
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/python.md", "docs/engines.md")
STORES = ("s3://bucket/run7", "dir:/mnt/run7")


def blocks():
    """{(document, number from 1): text}."""
    found = {}
    for document in DOCUMENTS:
        if not (ROOT / document).exists():
            pytest.skip("the documents are not beside the tests")
        texts = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
        found.update({(document, k): text for k, text in enumerate(texts, 1)})
    return found


class World:
    """What blocks take for granted; versions of `lineage` are made by steps of `train`."""

    def __init__(self, tmp_path):
        torch.manual_seed(7)
        self.path, self.store = tmp_path, f"dir:{tmp_path / 'store'}"
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 4))
        self.closing = contextlib.ExitStack()
        self.names = {"segue": segue, "torch": torch, "model": self.model, "steps": 3,
                      "tokens": torch.ones(2, 8), "train": self.train}

    def train(self, model=None):
        with torch.no_grad():
            for parameter in (model or self.model).parameters():
                parameter += 0.25

    def clone(self):
        """The model as it is, in memory of its own."""
        other = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 4))
        other.load_state_dict(self.model.state_dict())
        return other

    def versions(self, count, lineage="run7"):
        """Makes that many; the model before the first of them."""
        before = self.clone()
        with segue.Publisher(self.store, lineage=lineage, base=self.model) as publisher:
            for _ in range(count):
                self.train()
                publisher.publish(self.model)
        return before

    def checkpoint(self, model, name="checkpoint"):
        """A directory with these weights."""
        from safetensors.torch import save_file
        (self.path / name).mkdir()
        save_file(model.state_dict(), self.path / name / "model.safetensors")
        return self.path / name

    def segment(self, name, lineage="run7"):
        """One that `segue serve` would keep, at version 0 of a lineage with more."""
        before = self.versions(2, lineage)
        segue.remove_segment(name)
        self.closing.callback(segue.remove_segment, name)
        self.closing.enter_context(segue.Receiver(
            self.store, lineage=lineage, name=name,
            checkpoint=self.checkpoint(before)).open())

    def run(self, text, **replaced):
        """Runs a block; `replaced`: what it says -> what stands there in this world."""
        for store in STORES:
            text = text.replace(f'"{store}"', repr(self.store))
        for said, here in replaced.items():
            assert said in text, said
            text = text.replace(said, here)
        exec(compile(text, "the document", "exec"), self.names)  # noqa: S102
        return self.names


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    with world.closing:
        yield world


def readme(world, text):
    """Publisher and receiver in one process, on models of their own; a segment beside them."""
    name = f"docs-{os.getpid()}"
    publish, receive = text.split("receiver = ")
    receive, attach = receive.split("weights = ")
    live = world.clone()
    publish = publish.replace("publisher.publish", "train(); publisher.publish")
    assert world.run(publish)["publisher"].version == 1
    world.names["model"] = live
    world.run("receiver = " + receive)
    assert all(torch.equal(live.state_dict()[n], t) for n, t in world.model.state_dict().items())
    world.names["receiver"].close()
    world.store += "2"
    world.segment(name)
    seen = []
    world.names["forward"] = seen.append
    world.run("weights = " + attach, **{'"engine-0"': repr(name)})
    assert seen[0].keys() == world.model.state_dict().keys()


def publish(world, text):
    assert world.run(text)["report"].target_version == 3


def distributed(world, text):
    """On one rank, with FSDP2."""
    from torch.distributed.fsdp import fully_shard
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    world.closing.callback(dist.destroy_process_group)
    mesh = dist.init_device_mesh("cpu", (1,))
    world.names["fully_shard"] = lambda model: fully_shard(model, mesh=mesh)
    publisher = world.run(text)["publisher"]
    assert publisher.version == 3
    whose = f"rank 0 of 1: <segue.Publisher of lineage 'run7' in {world.store!r}, "
    assert whose + "baseline of " in repr(publisher)
    publisher.close()
    assert whose + "closed>" in repr(publisher)


def attach(world, text):
    name = f"docs-{os.getpid()}"
    world.segment(name)
    seen = []
    world.names |= {"serving": True}

    def forward(tensor, *_):
        seen.append((tuple(tensor.shape), world.names["step"].version))
        world.names["serving"] = False

    world.names["forward"] = forward
    world.run(text, **{'"engine-0"': repr(name), "layers.0.q_proj.weight": "0.weight",
                       "forward(q, ...)": "forward(q)"})
    assert seen == [((4, 8), 2)]


def update(world, text):
    live = world.versions(7)
    world.names["model"] = live
    names = world.run(text)
    assert names["step"].version == 7
    names["receiver"].close()


def wrong(world, text):
    """A rebuild from the checkpoint, then weights that are put in place by hand."""
    live = world.versions(3)
    torch.save(live.state_dict(), world.path / "step.pt")
    receiver = segue.Receiver(world.store, lineage="run7", checkpoint=world.checkpoint(live))
    receiver.bind_module(live)
    receiver.open()
    world.names |= {"receiver": receiver, "model": live}
    world.run(text, **{'"step-40.pt"': repr(str(world.path / "step.pt"))})
    assert world.names["receiver"].status.version == 3
    world.names["receiver"].close()


def ranks(world, text):
    """The sum of one rank of one; and that a receiver takes it, which needs the other three."""
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    world.closing.callback(dist.destroy_process_group)
    world.names |= {"gloo_group": dist.group.WORLD, "store": world.store, "rank": 1, "rows": 1,
                    "columns": 8, "part": torch.zeros(1, 8, dtype=torch.bfloat16)}
    names = world.run(text)
    words = bytearray(range(16))
    names["sum_over_ranks"](words)
    assert words == bytearray(range(16))
    assert "lineage 'run7'" in repr(names["receiver"])


def gpu(world, text):
    """No GPU: that what is on none is refused is all that can be seen."""
    with pytest.raises(segue.InvalidArgumentError, match="CPU's memory"):
        world.run(text)


def lineages(world, text):
    making, moving = text.split("...  ")
    lives = {name: world.versions(8 if name == "policy" else 3, name)
             for name in ("policy", "draft")}
    world.run(making)
    for name, model in lives.items():
        world.names[name].bind_module(model)
    seen = []
    world.names["speculate"] = seen.append
    names = world.run("...  " + moving)
    status = names["group"].status
    assert {name: one.version for name, one in status.items()} == {"policy": 8, "draft": 3}
    assert len(seen) == 1
    names["group"].close()


def server(status):
    """An engine with the adapters, as far as one that is told everything is right looks."""
    body = {"success": True, "results": [status], "message": "segue:" + json.dumps(status)}
    return serving(lambda path, asked: (200, body))


STATUS = {"state": "PREPARED", "ready": True, "version": 7, "target": 7, "rank": 0,
          "draft": {"lineage": "draft", "version": 7}}


def control(world, text):
    world.names["tensor_parallel_size"] = 1
    url = re.search(r'"(http://[^"]*)"', text).group(1)
    with server(STATUS) as here:
        engine = world.run(text, **{url: here})["engine"]
        assert engine.status()["version"] == 7


def draft(world, text):
    from segue.adapters.vllm_http import VLLMControl
    with server(STATUS) as here:
        world.names["engine"] = VLLMControl(here)
        world.run(text)
        assert world.names["engine"].status()["draft"]["version"] == 7


def by_hand(world, text):
    live = world.versions(7)
    checkpoint = world.checkpoint(live)
    world.names["model"] = live
    receiver = world.run(text, **{'"/models/base"': repr(str(checkpoint))})["receiver"]
    assert receiver.status()["version"] == 7 and receiver.status()["ready"]
    receiver.close()


RUN = {
    ("README.md", 1): readme,
    ("docs/python.md", 1): publish,
    ("docs/python.md", 2): distributed,
    ("docs/python.md", 3): attach,
    ("docs/python.md", 4): update,
    ("docs/python.md", 5): wrong,
    ("docs/python.md", 6): ranks,
    ("docs/python.md", 7): gpu,
    ("docs/python.md", 8): lineages,
    ("docs/engines.md", 1): control,
    ("docs/engines.md", 2): control,
    ("docs/engines.md", 3): draft,
    ("docs/engines.md", 4): by_hand,
}


def test_every_public_name_says_what_it_is():
    """Also each member: nanobind gives one without a text the bare signature."""
    silent = []
    for name in set(segue.__all__) - {"__version__"}:
        members = {name: getattr(segue, name)}
        if isinstance(members[name], type) and not issubclass(members[name], Exception):
            members |= {f"{name}.{key}": value for key, value in vars(members[name]).items()
                        if not key.startswith("_")}
        for path, member in members.items():
            text = re.sub(r"^(\w+)?\(self.*?\) ->.*", "", inspect.getdoc(member) or "")
            if not text.strip():
                silent.append(path)
    assert not silent


def test_every_block_is_known():
    assert blocks().keys() == RUN.keys()


@pytest.mark.parametrize("block", RUN, ids=lambda block: f"{block[0]}-{block[1]}")
def test_the_block_does_what_it_says(world, block):
    RUN[block](world, blocks()[block])
