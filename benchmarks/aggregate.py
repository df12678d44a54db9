"""What a rule costs a reducer: time against the plain mean in the same run, and memory, on one thread.

    python benchmarks/aggregate.py

16 members of 1 M elements, all with different norms and tokens. Every rule runs in turn, ROUNDS times; of each the
run with the least CPU time counts, which other work on the machine disturbs least. The extra memory is the most that
torch allocates beyond the members and the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import accumulate

import torch
from bench import Figures, budget, main, say
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from subnet.diloco.aggregate import CenteredClip, Mean, Rule, Trimmed, norm, reduce_part

MEMBERS, ELEMENTS, ROUNDS = 16, 2**20, 7
RULES: dict[str, tuple[Rule, float]] = {
    "mean": (Mean(), 1.0),
    "mean_of_senders": (Mean(over="senders"), 6.0),
    "trimmed": (Trimmed(0.25), 9.0),
    "median": (Trimmed(0.5), 8.0),
    "centered_clip": (CenteredClip(1.0, 3), 30.0),
}
"""Each rule and the most it may take, in times of the mean."""
MAX_EXTRA_MIB = 8.0


async def measure() -> tuple[bool, Figures]:
    """Time and memory of every rule on the same members."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    members = [(1.0 + i / MEMBERS) * torch.randn(ELEMENTS, generator=generator) for i in range(MEMBERS)]
    tokens, norms = list(range(1000, 1000 + MEMBERS)), [norm(x) for x in members]
    seconds = dict.fromkeys(RULES, float("inf"))
    for number in range(ROUNDS):
        for name, (rule, _) in RULES.items():
            start = time.process_time()
            reduce_part(members, tokens, norms, rule)
            seconds[name] = min(seconds[name], time.process_time() - start)
        say(f"run {number + 1} of {ROUNDS}: " + ", ".join(f"{n} {s * 1e3:.1f} ms" for n, s in seconds.items()))
    times = {
        name: budget(seconds[name] / seconds["mean"], limit) for name, (_, limit) in RULES.items() if name != "mean"
    }
    extra = {
        name: _peak_mib(lambda rule=rule: reduce_part(members, tokens, norms, rule))
        for name, (rule, _) in RULES.items()
    }
    memory = {name: budget(mib - members[0].nbytes / 2**20, MAX_EXTRA_MIB) for name, mib in extra.items()}
    ok = all(figure["ok"] for figure in (*times.values(), *memory.values()))
    shape = {"members": MEMBERS, "elements": ELEMENTS, "mean_seconds": float(f"{seconds['mean']:.4g}")}
    return ok, {**shape, "times_of_mean": times, "extra_mib": memory}


def _peak_mib(work: Callable[[], Tensor]) -> float:
    """The most that torch held at once of what it allocated during `work`."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = work()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    del result
    return max(accumulate(sizes)) / 2**20


if __name__ == "__main__":
    sys.exit(main(measure))
