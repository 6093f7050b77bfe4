# SPDX-License-Identifier: Apache-2.0
"""Publishers of several ranks over gloo: whatever way the tensors are cut, an engine comes to the
trainer's bytes; partitions that do not fit are refused on every rank."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import segue
from ranks_support import (SHAPES, cut, engine_reaches, error_of, full_model, open_publisher,
                           run_ranks, same_bytes, versions)

STEPS = 3


# --- Ways to hold a model: cut(rank, count, step) -> tensors of a rank ----------------------------


def copies(rank, count, step):
    """Data parallel: every rank has all."""
    return full_model(step)


def stages(rank, count, step):
    """Pipeline parallel: each tensor on one rank, one of them on two."""
    names = sorted(SHAPES)
    return {name: tensor for name, tensor in full_model(step).items()
            if names.index(name) % count == rank or name == "embed.weight" and rank < 2}


def partitions(rank, count, step):
    """A trainer's own way: rows, columns, whole ones, some not contiguous in memory."""
    held = {}
    for number, (name, tensor) in enumerate(full_model(step).items()):
        if tensor.dim() == 0 or number % 3 == 2:
            held[name] = tensor if tensor.dim() < 2 else \
                tensor.transpose(0, -1).contiguous().transpose(0, -1)
            continue
        part, offset = cut(tensor, (number + 1) % tensor.dim(), count)[rank]
        held[name] = segue.distributed.Partition(part, tuple(tensor.shape), offset)
    return held


def dtensors(rank, count, step):
    """Shard(0), Shard(1) and Replicate on one dimension of ranks; uneven throughout."""
    from torch.distributed.tensor import Replicate, Shard, init_device_mesh
    mesh = init_device_mesh("cpu", (count,))
    placements = [Shard(0), Shard(1), Shard(2), Shard(0), Shard(0), Replicate(), Replicate(),
                  Shard(0)]
    return placed(mesh, [[placement] for placement in placements], step)


def mesh_of_two(rank, count, step):
    """Two dimensions of ranks: copies of parts, parts of parts."""
    from torch.distributed.tensor import Replicate, Shard, init_device_mesh
    mesh = init_device_mesh("cpu", (2, count // 2))
    return placed(mesh, [[Shard(0), Shard(1)], [Replicate(), Shard(0)], [Shard(2), Shard(0)],
                         [Shard(0), Shard(0)], [Shard(0), Replicate()], [Replicate(), Replicate()],
                         [Replicate(), Replicate()], [Shard(0), Shard(1)]], step)


def placed(mesh, placements, step):
    """Each rank cuts its part out of what all know: no communication that a test could trust."""
    from torch.distributed.tensor import distribute_tensor
    held = {}
    for (name, tensor), where in zip(full_model(step).items(), placements):
        as_bytes = tensor.view(torch.uint8) if tensor.dim() and tensor.element_size() == 1 \
            else tensor
        made = distribute_tensor(as_bytes, mesh, where)
        if as_bytes is not tensor:
            made = torch.distributed.tensor.DTensor.from_local(
                made.to_local().view(tensor.dtype), mesh, where, run_check=False,
                shape=tensor.shape, stride=tensor.stride())
        held[name] = made
    return held


def publish_steps(rank, store, count, hold):
    """Steps 1 to STEPS; (names owned, bytes of the baseline, digests)."""
    held = hold(rank, count, 0)
    digests = []
    with open_publisher(store, held) as publisher:
        for step in range(1, STEPS + 1):
            report = publisher.publish(step, hold(rank, count, step))
            digests.append((report.base_version, report.target_version, report.target_digest))
            assert publisher.version == step
        return publisher.owned, publisher.baseline_bytes, digests


@pytest.mark.parametrize("hold, count", [(copies, 3), (stages, 3), (partitions, 3), (dtensors, 3),
                                         (mesh_of_two, 4), (copies, 1)])
def test_engines_reach_the_trainer(tmp_path, hold, count):
    store = str(tmp_path / "store")
    answers = run_ranks(count, publish_steps, store, count, hold)
    owned = [name for names, _, _ in answers for name in names]
    assert sorted(owned) == sorted(name for name in SHAPES if name != "empty")
    assert all(names for names, _, _ in answers)
    # No rank has more than its part, and cache lines between tensors.
    assert sum(size for _, size, _ in answers) < 64 * len(SHAPES) + sum(
        tensor.nbytes for tensor in full_model(0).values())
    assert [v for _, v, _ in answers[0][2]] == list(range(1, STEPS + 1))
    for since in (0, 1):
        assert engine_reaches(store, STEPS, since)


def publish_fsdp(rank, store, parallel):
    """FSDP2 as trainers use it, tensor parallel within where asked; every second step of the
    optimizer is a version. Returns what full_tensor() says, as torch itself gathers it."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 7),
                                torch.nn.LayerNorm(7))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor")) if parallel else \
        init_device_mesh("cpu", (2,), mesh_dim_names=("data",))
    if parallel:
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh["data"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def gathered():
        return {name: (value.full_tensor() if hasattr(value, "full_tensor") else value).clone()
                for name, value in model.state_dict().items()}

    base = gathered()
    with open_publisher(store, model) as publisher:
        handle = publisher.attach(optimizer, every=2)
        for step in range(5):
            model(torch.randn(4, 12)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 3:
                trained = gathered()
        assert publisher.version == 4
        handle.remove()
        optimizer.step()
        optimizer.step()
        assert publisher.version == 4
    return [{name: tensor.numpy() for name, tensor in each.items()} for each in (base, trained)]


@pytest.mark.parametrize("parallel", [False, True])
def test_fully_sharded_modules(tmp_path, parallel):
    store = str(tmp_path / "store")
    live, trained = run_ranks(4 if parallel else 2, publish_fsdp, store, parallel)[0]
    assert versions(store) == [2, 4]
    with segue.Receiver(store) as receiver:
        for name, array in live.items():
            receiver.bind(name, array)
        receiver.update()
    assert all(live[name].tobytes() == array.tobytes() for name, array in trained.items())


# --- Refusals -------------------------------------------------------------------------------------


def refused_openings(rank, store):
    """What opening says on each rank, for each fault."""
    from torch.distributed.tensor import DTensor, Partial, Shard, init_device_mesh
    from torch.distributed.tensor.placement_types import _StridedShard
    model = full_model(0)
    weight = model["layer.0.weight"]
    other = {**model, "layer.0.weight": weight if rank else weight.reshape(50, 64)}
    less = {"layer.0.weight": segue.distributed.Partition(weight[rank * 30:rank * 30 + 30],
                                                          (64, 50), (rank * 30, 0))}
    over = {"layer.0.weight": segue.distributed.Partition(weight[rank * 30:rank * 30 + 34],
                                                          (64, 50), (rank * 30, 0))}
    mesh = init_device_mesh("cpu", (2,))
    partial = {"w": DTensor.from_local(weight, mesh, [Partial()], run_check=False)}
    strided = {"w": DTensor.from_local(
        weight[:3 - rank], init_device_mesh("cpu", (2, 1)), [_StridedShard(0, split_factor=1),
                                                             Shard(0)],
        run_check=False, shape=torch.Size((5, 50)), stride=(50, 1))}
    return [error_of(open_publisher, store, other), error_of(open_publisher, store, less),
            error_of(open_publisher, store, over), error_of(open_publisher, store, partial),
            error_of(open_publisher, store, strided),
            error_of(open_publisher, store, model, lineage=f"run{rank}"),
            error_of(open_publisher, store, model if rank else {"x": "no tensor"}),
            error_of(open_publisher, store, model, owner=1),
            error_of(open_publisher, "dir:" + store + ("" if rank else "/\0"), model),
            error_of(open_publisher, store, model)]


def test_what_ranks_disagree_on_is_refused_on_all(tmp_path):
    answers = run_ranks(2, refused_openings, str(tmp_path / "store"))
    for found in zip(answers[0], [
            "float32 [50, 64] on rank 0 and float32 [64, 50] on rank 1", "3000 elements of 3200",
            "overlap", "no final values", "is not one piece", "'run0'", "rank 0: tensor 'x'",
            "owner: the ranks settle that", "rank 0: ", ""]):
        assert found[1] in found[0] and bool(found[1]) == bool(found[0]), found
    assert [text.split(":")[0] for text in answers[0]] == [
        text.split(":")[0] for text in answers[1]]
    assert versions(str(tmp_path / "store")) == []


def refused_versions(rank, store):
    """What publishing says on each rank, for each fault, and then without one."""
    publisher = open_publisher(store, full_model(0))
    model = full_model(1)
    shape = {**model, "bias": model["bias"] if rank else model["bias"].reshape(13, 1)}
    fewer = {name: tensor for name, tensor in model.items() if rank or name != "bias"}
    more = {**model, **({} if rank else {"new": model["bias"]})}
    faults = [error_of(publisher.publish, 1, shape), error_of(publisher.publish, 1, fewer),
              error_of(publisher.publish, 1, more),
              error_of(publisher.publish, 1 + rank, model)]
    publisher.publish(1, model)
    return faults + [error_of(publisher.publish, 1, full_model(2)),
                     error_of(publisher.publish, 2, full_model(2))]


def test_versions_that_ranks_disagree_on_are_refused_on_all(tmp_path):
    store = str(tmp_path / "store")
    answers = run_ranks(2, refused_versions, store)
    for found in zip(answers[0], [
            "rank 0: tensor 'bias' is float32 [13, 1], and when the publisher was opened float32 "
            "[13]", "rank 0: tensor 'bias' is missing", "was not there",
            "1 on rank 0, 2 on rank 1", "version 1", ""]):
        assert found[1] in found[0] and bool(found[1]) == bool(found[0]), found
    assert [bool(text) for text in answers[1]] == [True] * 5 + [False]
    assert versions(store) == [1, 2] and engine_reaches(store, 2)


def test_one_rank_publishes_as_a_single_publisher_does(tmp_path):
    """The same plan, digests and versions, whoever publishes."""
    store = str(tmp_path / "store")
    digests = [run_ranks(count, publish_steps, store + str(count), count, copies)[0][2]
               for count in (1, 2)]
    single = segue.Publisher(store, base=full_model(0), chunk_size=4096)
    digests.append([(r.base_version, r.target_version, r.target_digest) for r in
                    (single.publish(full_model(step)) for step in range(1, STEPS + 1))])
    assert digests[0] == digests[1] == digests[2]


def test_bytes_are_compared_and_not_values():
    """The judge of these tests."""
    one, other = torch.tensor([0.0]), torch.tensor([-0.0])
    assert one.equal(other) and not same_bytes(one, other)
