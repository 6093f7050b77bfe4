# SPDX-License-Identifier: Apache-2.0
"""What the runs have shown: a table on the terminal and four pictures in one file."""

import statistics


def samplers_view(told):
    """Sums over the sampler's batches, from the first version of the trainer's on."""
    batches = [batch for batch in told["sampler"] if batch["version"] > 0] or told["sampler"]
    seconds = sum(batch["took_s"] for batch in batches)
    tokens = sum(batch["tokens"] for batch in batches)
    waited = sum(batch["waited_s"] for batch in batches)
    return {"tokens_s": tokens / seconds, "waited_s": waited, "lost": waited / seconds,
            "waits_s": [batch["waited_s"] for batch in batches], "batches": len(batches),
            "read_again": sum(batch["read_again"] for batch in batches) / max(tokens, 1)}


def reward(told, last):
    """Mean reward of the first or last tenth of the steps."""
    steps = told["trainer"]
    part = max(1, len(steps) // 10)
    return statistics.mean(step["reward"] for step in (steps[-part:] if last else steps[:part]))


def show(runs):
    """The table."""
    print(f"{'':12}{'tokens/s':>10}{'lost':>9}{'longest':>11}{'payload':>11}{'density':>9}"
          f"{'send':>10}{'reward':>16}{'equal':>7}")
    for mode, told in runs.items():
        seen, steps = samplers_view(told), told["trainer"]
        payload = statistics.median(step["payload_bytes"] for step in steps)
        density = statistics.median(step["density"] for step in steps)
        send = statistics.median(step["send_s"] for step in steps)
        print(f"{mode:12}{seen['tokens_s']:10.0f}{seen['lost']:9.2%}"
              f"{max(seen['waits_s']) * 1e3:8.1f} ms{payload / 1e6:8.2f} MB{density:9.1%}"
              f"{send * 1e3:7.1f} ms{reward(told, False):8.2f} >{reward(told, True):5.2f}"
              f"{'yes' if told['equal'] else 'NO':>7}")
    print("lost: share of the sampler's time spent waiting for weights, and so of its tokens; "
          "longest: in one batch")


def draw(runs, path):
    """Reward, density and payload, waits, and tokens a second, over steps and time."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, places = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for mode, told in runs.items():
        steps = [step["step"] for step in told["trainer"]]
        places[0][0].plot(steps, [step["reward"] for step in told["trainer"]], label=mode)
        places[0][1].plot(steps, [step["payload_bytes"] / 1e6 for step in told["trainer"]],
                          label=f"{mode}: payload, MB")
        begin = told["sampler"][0]["at_s"]
        times = [batch["at_s"] - begin for batch in told["sampler"]]
        places[1][0].plot(times, [batch["waited_s"] * 1e3 for batch in told["sampler"]], ".",
                          label=mode)
        places[1][1].plot(times, [batch["tokens"] / batch["took_s"] for batch in told["sampler"]],
                          label=mode)
    density = places[0][1].twinx()
    steps = runs["segue"]["trainer"]
    density.plot([step["step"] for step in steps], [step["density"] for step in steps], "k:")
    density.set(ylabel="elements changed (dotted)", ylim=(0, 1))
    titles = ("reward", "payload of a step", "waiting for weights in a batch, ms",
              "tokens a second")
    for place, title in zip(places.flat, titles):
        place.set_title(title)
        place.legend()
    places[1][0].set_yscale("symlog", linthresh=0.01)
    for place in places[1]:
        place.set_xlabel("s")
    figure.savefig(path, dpi=110)
