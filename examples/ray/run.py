#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ray actors with live weights: a trainer and two samplers on one node, one of which is killed.

    ./dev example ray [--steps 12]

Rollouts go through Ray, weights through Segue's store, a directory: the trainer publishes each
step, the samplers take it in the background while they generate, and no call carries weights.
Ray starts the killed sampler anew; it rebuilds its weights from the base and one combined delta.
Ends with `verified` when both samplers' weights equal the trainer's bit for bit. README.md beside
this explains it; model and task are those of examples/rl.
"""

import argparse
import os
import pathlib
import secrets
import signal
import sys
import tempfile
import time

# Workers of Ray find examples/rl as this process does.
RL = str(pathlib.Path(__file__).resolve().parents[1] / "rl")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [RL, os.environ.get("PYTHONPATH")]))
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Tells nobody of it.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Whose name for: the loopback alone.
# A token for this cluster alone; Ray would write one into the home directory.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
sys.path.insert(1, RL)

import ray  # noqa: E402
import torch  # noqa: E402

import policy  # noqa: E402
import segue  # noqa: E402
import task  # noqa: E402

HIDDEN = 64
SEED = 1
GROUPS, GROUP_SIZE = 8, 8  # Prompts of a rollout, answers to each.


def bits_of(weights):
    """{name: int16 array}: BF16 tensors as Ray and numpy can carry and compare them."""
    return {name: weight.view(torch.int16).numpy().copy() for name, weight in weights.items()}


def base_model():
    """The model that everybody starts from: the same bits in every process, and no file of it."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    return policy.build(HIDDEN)


@ray.remote
class Trainer:
    """Makes GRPO steps and publishes each; knows of no sampler."""

    def __init__(self, store):
        self.model = base_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.0)
        weights = policy.served(self.model)
        self.publisher = segue.Publisher(store, lineage="rl", base=weights)
        self.publisher.publish(weights)  # Version 1 is the base once more: now there is a lineage.

    def train(self, rollout):
        loss = policy.grpo_loss(self.model, rollout)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        report = self.publisher.publish(policy.served(self.model))
        return {"version": report.target_version, "payload_bytes": report.payload_bytes}

    def weights(self):
        return bits_of(policy.served(self.model))


@ray.remote(max_restarts=1, max_task_retries=-1)
class Sampler:
    """Generates with weights in its own memory, which a receiver keeps in step with the store.
    After a crash Ray calls __init__ again, and that is all that a rebuild takes."""

    def __init__(self, store, number):
        self.generator = torch.Generator().manual_seed(SEED + 1 + number)
        self.model = base_model().to(torch.bfloat16).eval().requires_grad_(False)
        self.receiver = segue.Receiver(store, lineage="rl", threads=1)
        for name, parameter in self.model.named_parameters():
            self.receiver.bind(name, parameter)
        # Proves that these are the base's bytes, and takes all versions since then as one delta.
        self.first = self.receiver.update()
        self.receiver.follow(0.01)

    def began(self):
        """Process, and the versions that it went from and to before it followed."""
        return os.getpid(), self.first.base_version, self.first.target_version

    def sample(self):
        prompts, right = task.prompts(GROUPS, self.generator)
        prompts = prompts.repeat_interleave(GROUP_SIZE, 0)
        right = right.repeat_interleave(GROUP_SIZE, 0)
        decoder = policy.Decoder(self.model, prompts, self.generator)
        for _ in range(task.DIGITS):
            with self.receiver.step():  # An update waits for this, and this for an update.
                decoder.next_token(self.receiver.status.version)
        answers = decoder.answers
        return {"groups": GROUPS, "prompts": prompts, "answers": answers,
                "log_probabilities": torch.cat(decoder.log_probabilities, 1),
                "reward": task.reward(answers, right), "version": decoder.version}

    def weights(self, version):
        """Once they are those of `version`."""
        while self.receiver.status.version < version:
            time.sleep(0.01)
        with self.receiver.step():
            return bits_of(dict(self.model.named_parameters()))


def loop(trainer, samplers, steps):
    """GRPO: each sampler in turn gives a rollout, while the other one already makes the next. Gives
    the last version."""
    pending = [sampler.sample.remote() for sampler in samplers]
    for step in range(1, steps + 1):
        turn = step % len(samplers)
        rollout = ray.get(pending[turn])
        told = ray.get(trainer.train.remote(rollout))
        if step == steps // 2:
            replace(samplers[turn])
        pending[turn] = samplers[turn].sample.remote()
        print(f"version {told['version']:3}  payload {told['payload_bytes']:7,} bytes  "
              f"rollout of sampler {turn}, version {rollout['version']}", flush=True)
    return told["version"]


def replace(sampler):
    """Kills the sampler's process; Ray starts another one, and asks that one what it is asked."""
    killed, *_ = ray.get(sampler.began.remote())
    os.kill(killed, signal.SIGKILL)
    process, base, target = ray.get(sampler.began.remote())
    print(f"sampler killed (process {killed}); process {process} went from version {base} to "
          f"{target} in one delta", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12, help="of the trainer")
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="segue-ray-") as folder:
        ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100 << 20,
                 _temp_dir=f"{folder}/ray")
        store = f"{folder}/store"
        trainer = Trainer.remote(store)
        ray.get(trainer.weights.remote())  # It has published: samplers find the lineage.
        samplers = [Sampler.remote(store, number) for number in range(2)]
        newest = loop(trainer, samplers, steps)
        ours = ray.get(trainer.weights.remote())
        for theirs in ray.get([sampler.weights.remote(newest) for sampler in samplers],
                              timeout=60):
            if ours.keys() != theirs.keys() or any((ours[name] != theirs[name]).any()
                                                   for name in ours):
                sys.exit("a sampler's weights differ from the trainer's")
        ray.shutdown()
    print("verified")


if __name__ == "__main__":
    main()
