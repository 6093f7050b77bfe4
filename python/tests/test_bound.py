# SPDX-License-Identifier: Apache-2.0
"""What a receiver has bound: a model that computes with other tensors by now, memory that two
receivers would write, memory that may not be written, weights that were never proven or are
wrong."""

import mmap
import os
import pickle
import time
import warnings

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step

torch = pytest.importorskip("torch")


def make_module(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)).bfloat16()


@pytest.fixture
def run(tmp_path):
    """A store with version 1 of a module, and another module at version 0, bound and open."""
    class Run:
        store = tmp_path / "store"
        trainer, live = make_module(), make_module()
        publisher = segue.Publisher(store, base=trainer.state_dict())
        receiver = segue.Receiver(store)

        def advance(self):
            with torch.no_grad():
                self.trainer[0].weight[0, 0] += 1
            return self.publisher.publish(self.trainer.state_dict())

        def is_newest(self):
            ours = self.live.state_dict()
            return all(torch.equal(tensor, ours[name])
                       for name, tensor in self.trainer.state_dict().items())
    made = Run()
    made.advance()
    made.receiver.bind_module(made.live)
    made.receiver.open()
    yield made
    made.receiver.close()
    made.publisher.close()


def assign_anew(module):
    module.load_state_dict({name: tensor.clone() for name, tensor in module.state_dict().items()},
                           assign=True)


def replace_data(module):
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


def replace_parameter(module):
    module[0].weight = torch.nn.Parameter(module[0].weight.detach().clone())


def replace_submodule(module):
    module[1] = torch.nn.LayerNorm(16).bfloat16()


REPLACE = {
    "float": lambda module: module.float(),
    "to": lambda module: module.to(torch.float16),
    "assign": assign_anew,
    "data": replace_data,
    "parameter": replace_parameter,
    "submodule": replace_submodule,
    "deleted": lambda module: module[0].__delattr__("bias"),
    "storage": lambda module: module[0].weight.untyped_storage().resize_(0),
}


def test_a_module_is_updated_in_place(run):
    assert run.receiver.update().target_version == 1
    assert run.is_newest()
    with run.receiver.step() as step_:
        assert step_.version == 1
    with pytest.raises(segue.InvalidArgumentError, match="before open"):
        run.receiver.bind_module(run.live)


@pytest.mark.parametrize("how", REPLACE)
def test_a_module_that_computes_with_another_tensor_is_refused(run, how):
    REPLACE[how](run.live)
    named = r"tensor '[01]\.(weight|bias)': its memory was replaced"
    with pytest.raises(segue.InvalidArgumentError, match=named):
        run.receiver.update()
    assert not run.receiver.status.ready
    with pytest.raises(segue.InvalidArgumentError, match=named):
        with run.receiver.step():
            pass
    with run.receiver.step(proven=False):
        pass


def test_a_group_looks_its_modules_up(run):
    run.receiver.close()
    receiver = segue.Receiver(run.store)
    receiver.bind_module(run.live)
    with segue.ReceiverGroup([receiver]) as group:
        group.update()
        replace_parameter(run.live)
        with pytest.raises(segue.InvalidArgumentError, match=r"tensor '0\.weight'"):
            group.step()
        with pytest.raises(segue.InvalidArgumentError, match=r"tensor '0\.weight'"):
            group.update()


def test_a_callable_is_asked_again(run):
    run.receiver.close()
    receiver = segue.Receiver(run.store)
    for name in run.live.state_dict():
        receiver.bind(name, lambda name=name: run.live.get_parameter(name))
    receiver.update()
    assert run.is_newest()
    run.advance()
    replace_parameter(run.live)
    with pytest.raises(segue.InvalidArgumentError, match=r"tensor '0\.weight': its memory was"):
        receiver.update()
    receiver.close()


def test_names_of_a_module(run):
    run.receiver.close()
    wrapped = torch.nn.ModuleDict({"model": run.live, "head": torch.nn.Linear(2, 2)})
    receiver = segue.Receiver(run.store)
    receiver.bind_module(wrapped, rename=lambda name: (
        name.removeprefix("model.") if name.startswith("model.") else None))
    receiver.update()
    assert run.is_newest()
    receiver.close()
    with pytest.raises(segue.InvalidArgumentError, match="is no module"):
        segue.Receiver(run.store).bind_module({"w": torch.zeros(2)})
    with pytest.raises(segue.InvalidArgumentError, match="bind_module"):
        segue.Receiver(run.store).bind("w", run.live)


def test_tied_parameters_of_a_module(tmp_path):
    def tied():
        module = torch.nn.ModuleDict({"a": torch.nn.Linear(8, 8), "b": torch.nn.Linear(8, 8)})
        torch.nn.init.ones_(module["a"].weight)
        torch.nn.init.zeros_(module["a"].bias)
        torch.nn.init.zeros_(module["b"].bias)
        module["b"].weight = module["a"].weight
        return module
    trainer, live = tied(), tied()
    publisher = segue.Publisher(tmp_path / "store", base=trainer.state_dict())
    with torch.no_grad():
        trainer["a"].weight[3, 3] = 5
    publisher.publish(trainer.state_dict())
    with segue.Receiver(tmp_path / "store") as receiver:
        receiver.bind_module(live)
        receiver.update()
        assert torch.equal(live["b"].weight, trainer["b"].weight)


def test_two_receivers_of_one_memory(run):
    second = segue.Receiver(run.store)
    second.bind_module(run.live)
    with pytest.raises(segue.InvalidArgumentError, match=r"'[01]\.\w+'.*has bound already"):
        second.open()
    run.receiver.update()
    run.receiver.close()
    assert second.open().status.ready
    second.close()


def test_lineages_of_a_group_share_no_memory(tmp_path):
    live = copy_of(make_model())
    for lineage in ("policy", "draft"):
        model = make_model()
        publisher = segue.Publisher(tmp_path / "store", base=model, lineage=lineage)
        step(model, 1)
        publisher.publish(model)
    draft = copy_of(make_model())
    draft["embed.weight"] = live["embed.weight"]
    group = segue.ReceiverGroup([bound(tmp_path / "store", live, lineage="policy"),
                                 bound(tmp_path / "store", draft, lineage="draft")])
    with pytest.raises(segue.InvalidArgumentError,
                       match="'embed.weight' of lineage 'draft'.*'embed.weight' of lineage 'pol"):
        group.open()
    assert same_bytes(live, make_model())


def read_only_memory(kind, path):
    if kind == "mmap":
        with open(path, "rb") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ),
                                    dtype=torch.float32)
    return torch.from_numpy(np.memmap(path, np.float32, "r"))


@pytest.mark.parametrize("kind", ["mmap", "memmap"])
def test_memory_that_is_mapped_for_reading(tmp_path, kind):
    path = tmp_path / "weights"
    path.write_bytes(bytes(16384))
    publisher = segue.Publisher(tmp_path / "store", base={"w": np.zeros(4096, np.float32)})
    publisher.publish({"w": np.ones(4096, np.float32)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        live = read_only_memory(kind, path)
    with pytest.raises(segue.InvalidArgumentError, match="tensor 'w'.*mapped for reading only"):
        bound(tmp_path / "store", {"w": live}).open()
    assert path.read_bytes() == bytes(16384)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private = torch.from_numpy(np.memmap(path, np.float32, "c"))
    with bound(tmp_path / "store", {"w": private}) as receiver:
        receiver.update()
        assert private[7] == 1


def test_weights_that_were_never_proven(tmp_path):
    model = make_model()
    publisher = segue.Publisher(tmp_path / "store", base=model)
    wrong = copy_of(model)
    wrong["scale"] += 1
    with bound(tmp_path / "store", copy_of(model)) as right, bound(tmp_path / "store",
                                                                  wrong) as other:
        for receiver in (right, other):
            receiver.open()
            status = receiver.status
            assert status.version == 0 and not status.ready
            assert "had no version when the weights were bound" in status.message
            with receiver.step():
                pass
        step(model, 1)
        publisher.publish(model)
        right.update()
        assert right.status.ready
        named = "are no version of lineage.*these differ from version 0: 'scale'$"
        with pytest.raises(segue.VersionMismatchError, match=named):
            other.update()
        with pytest.raises(segue.VersionMismatchError, match=named):
            other.step()
        assert other.status.message.endswith("'scale'")


def test_tensors_that_are_bound_wrong_are_named(tmp_path):
    model = make_model()
    model["twin.0"], model["twin.1"] = np.zeros(70, np.float32), np.ones(70, np.float32)
    old = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    for seed in (1, 2, 3):
        step(model, seed)
        publisher.publish(model)
    for version, live in ((0, old), (3, copy_of(model))):
        live["twin.0"], live["twin.1"] = live["twin.1"], live["twin.0"]
        with bound(tmp_path / "store", live) as receiver, pytest.raises(
                segue.VersionMismatchError,
                match=f"these differ from version {version}: 'twin.0', 'twin.1'$"):
            receiver.open()


def test_weights_that_a_scrub_found_wrong(tmp_path):
    model = make_model()
    publisher = segue.Publisher(tmp_path / "store", base=model)
    publisher.publish(model)
    live = copy_of(model)
    with bound(tmp_path / "store", live, scrub_rate=1 << 30) as receiver:
        with receiver.step():
            pass
        live["scale"] += 1
        until = time.monotonic() + 30
        while receiver.status.ready and time.monotonic() < until:
            time.sleep(0.01)
        with pytest.raises(segue.CorruptionError, match="a scan found"):
            receiver.step()
        with receiver.step(proven=False):
            pass
        with pytest.raises(segue.InvalidArgumentError, match="checkpoint=.*bind them to a new"):
            receiver.rebuild()
    live["scale"] -= 1
    with bound(tmp_path / "store", live) as receiver:
        assert receiver.open().status.ready


def test_scrub_of_memory_that_goes(tmp_path):
    """A scrub at full speed reads under the interpreter's lock, as does whoever frees memory."""
    size = 1 << 22
    publisher = segue.Publisher(tmp_path / "store", base={"w": torch.zeros(size)})
    publisher.publish({"w": torch.ones(size)})
    for _ in range(20):
        live = torch.ones(size)
        with bound(tmp_path / "store", {"w": live}, scrub_rate=1 << 33).open() as receiver:
            time.sleep(0.01)
            live.untyped_storage().resize_(0)
            time.sleep(0.005)
            assert not receiver.status.ready
            assert receiver.status.scrub_faults == 0


def test_one_name_bound_twice(run):
    receiver = segue.Receiver(run.store)
    receiver.bind("w", np.zeros(4, np.float32))
    with pytest.raises(segue.InvalidArgumentError, match="'w' is bound already.*copies="):
        receiver.bind("w", np.zeros(4, np.float32))


OPTIONS = [
    ({"public_keys": "/tmp/k.pem"}, "public_keys is a list"),
    ({"public_keys": ""}, "public_keys is a list"),
    ({"public_keys": [""]}, "public_keys is the path"),
    ({"sign_key": ""}, "sign_key is the path"),
    ({"gate_timeout": -1}, "gate_timeout is a number of seconds, 0 or more"),
    ({"gate_timeout": float("nan")}, "gate_timeout"),
    ({"threads": -1}, "threads is a whole number"),
    ({"scrub_rate": 0.5}, "scrub_rate is a whole number"),
    ({"lineage": None}, "lineage is a string"),
    ({"lineage": "\ud800"}, "lineage is a string that UTF-8"),
    ({"ranks": 2, "sum_over_ranks": segue.local_ranks(2)}, r"local_ranks\(ranks\)\[rank\]"),
]


@pytest.mark.parametrize("options, message", OPTIONS)
def test_options_are_named(tmp_path, options, message):
    with pytest.raises(segue.InvalidArgumentError, match=message):
        segue.Receiver(tmp_path, **options)


def test_calls_say_what_they_take(run):
    for call, message in [
            (lambda: run.receiver.update(to="7"), "to is a whole number"),
            (lambda: run.receiver.update(to=-1), "to is a whole number"),
            (lambda: run.receiver.follow(0), "interval is a number of seconds above 0"),
            (lambda: run.receiver.step(timeout=-1), "timeout"),
            (lambda: segue.ReceiverGroup([1]), "a group takes segue.Receiver, not int"),
            (lambda: segue.ReceiverGroup([run.receiver] * 2), "not opened|twice"),
            (lambda: segue.attach(7), "name is a string")]:
        with pytest.raises(segue.InvalidArgumentError, match=message):
            call()
    fresh = segue.Receiver(run.store)
    with pytest.raises(segue.InvalidArgumentError, match="twice"):
        segue.ReceiverGroup([fresh, fresh])


def test_calls_out_of_order_say_what_comes_first(run):
    receiver = run.receiver
    with pytest.raises(segue.UnavailableError, match="IDLE cannot be applied: prepare one first"):
        receiver.apply()
    receiver.prepare(session="s")
    receiver.wait_prepared()
    with pytest.raises(segue.UnavailableError, match="PREPARED.*apply or abort it first"):
        receiver.update()
    with pytest.raises(segue.UnavailableError, match="cannot be resumed: apply it first"):
        receiver.resume("s")
    receiver.apply("s")
    with pytest.raises(segue.UnavailableError, match="APPLIED.*resume it first"):
        receiver.update()
    receiver.resume("s")
    assert run.is_newest()


def test_an_update_inside_ones_own_step_is_refused_at_once(run):
    began = time.monotonic()
    with run.receiver.step():
        for call in (run.receiver.update, run.receiver.apply):
            with pytest.raises(segue.InvalidArgumentError, match="inside a step"):
                call()
    assert time.monotonic() - began < 10
    assert run.receiver.update().target_version == 1


def test_counts_are_of_what_happened_since_the_opening(run):
    counts = run.receiver.counts
    assert (counts.newest_version, counts.update_failures, counts.pause_failures) == (0, 0, 0)
    assert sum(counts.pauses.counts) == 0 and counts.pauses.seconds == 0
    pause = run.receiver.update().pause_s
    with pytest.raises(segue.NotFoundError):
        run.receiver.update(to=99)
    counts = run.receiver.counts
    assert isinstance(counts, segue.ReceiverCounts) and isinstance(counts.pauses, segue.PauseCounts)
    assert (counts.newest_version, counts.look_failures, counts.update_failures) == (1, 0, 1)
    assert counts.pauses.seconds == pytest.approx(pause)
    place = sum(bound < pause for bound in segue.PauseCounts.BOUNDS)
    assert counts.pauses.counts == [int(i == place) for i in range(len(counts.pauses.counts))]
    assert len(counts.pauses.counts) == len(segue.PauseCounts.BOUNDS) + 1
    assert counts.as_dict()["pauses"]["seconds"] == counts.pauses.seconds
    again = pickle.loads(pickle.dumps(counts))
    assert again.as_dict() == counts.as_dict()


def test_waits_are_told_whole(run):
    with pytest.raises(segue.NotFoundError, match="after 300 ms"):
        segue.attach(f"nobody-{os.getpid()}", timeout=0.3)
