# SPDX-License-Identifier: Apache-2.0
"""What the runs have shown: a record of every step, a table on the terminal and six pictures."""

import statistics


def generating(told):
    """The sampler's batches from the trainer's first version on; both processes are busy there."""
    return [batch for batch in told["sampler"] if batch["version"] > 0]


def lost_s(batches):
    """Seconds that went to synchronisation: waiting for weights, and reading tokens again."""
    return sum(batch["waited_s"] + batch["read_again_s"] for batch in batches)


def summary(told):
    """What the sampler has made, over all its batches."""
    batches = generating(told)
    seconds, lost = sum(batch["took_s"] for batch in batches), lost_s(batches)
    tokens = sum(batch["tokens"] for batch in batches)
    return {"tokens_s": tokens / seconds, "lost": lost / seconds,
            "undisturbed_tokens_s": tokens / (seconds - lost)}


def every_step(told):
    """What the trainer told of each step, and what that version cost the sampler: the pause, and
    the tokens that it would have made in the time it lost."""
    rate = summary(told)["undisturbed_tokens_s"]
    pauses = {update["version"]: update["pause_s"] for update in told["receiver"]}
    steps = []
    for step in told["trainer"]:
        batches = [batch for batch in generating(told) if batch["version"] == step["step"]]
        waited = sum(batch["waited_s"] for batch in batches)
        steps.append({**step, "pause_s": pauses.get(step["step"], waited), "waited_s": waited,
                      "tokens_lost": lost_s(batches) * rate})
    return steps


def show(runs):
    """The table."""
    print(f"{'':10}{'tokens/s':>9}{'lost':>8}{'wait':>10}{'longest':>10}{'density':>9}"
          f"{'payload':>10}{'send':>10}{'reward':>15}{'equal':>7}")
    for mode, told in runs.items():
        seen, steps = summary(told), told["steps"]
        middle = {name: statistics.median(step[name] for step in steps)
                  for name in ("waited_s", "density", "payload_bytes", "send_s")}
        longest = max(step["waited_s"] for step in steps)
        part = max(1, len(steps) // 10)
        before, after = (statistics.mean(step["reward"] for step in some)
                         for some in (steps[:part], steps[-part:]))
        print(f"{mode:10}{seen['tokens_s']:9.0f}{seen['lost']:8.2%}"
              f"{middle['waited_s'] * 1e3:7.1f} ms{longest * 1e3:7.1f} ms{middle['density']:9.1%}"
              f"{middle['payload_bytes'] / 1e6:7.2f} MB{middle['send_s'] * 1e3:7.1f} ms"
              f"{before:7.2f} > {after:.2f}{'yes' if told['equal'] else 'NO':>7}")


# Of every step: (key, factor, title).
OF_STEPS = [("reward", 1, "reward"), ("density", 100, "elements changed, %"),
            ("payload_bytes", 1e-6, "payload, MB"),
            ("waited_s", 1e3, "sampler waits, ms (dotted: pause, gate closed)"),
            ("tokens_lost", 1, "tokens lost")]


def each_second(batches):
    """(seconds since the first batch, tokens made in each)."""
    begin, tokens = batches[0]["at_s"], {}
    for batch in batches:
        second = int(batch["at_s"] + batch["took_s"] - begin)
        tokens[second] = tokens.get(second, 0) + batch["tokens"]
    seconds = range(max(tokens))  # The last one is not whole.
    return list(seconds), [tokens.get(second, 0) for second in seconds]


def draw(runs, path):
    """One picture for each of OF_STEPS, and the sampler's tokens in each second."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, places = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
    for mode, told in runs.items():
        numbers = [step["step"] for step in told["steps"]]
        for place, (key, factor, title) in zip(places.flat, OF_STEPS):
            lines = place.plot(numbers, [step[key] * factor for step in told["steps"]], ".-",
                               label=mode)
            place.set(title=title, xlabel="step")
        if told["receiver"]:
            places[1][0].plot(numbers, [step["pause_s"] * 1e3 for step in told["steps"]], ":",
                              color=lines[0].get_color())
        places[1][2].plot(*each_second(told["sampler"]), label=mode)
    places[1][2].set(title="tokens of the sampler in each second", xlabel="seconds")
    for place in places.flat[1:]:
        place.set_ylim(bottom=0)
    places[0][0].legend()
    figure.savefig(path, dpi=110)
