"""min_compute.yml against the runs it speaks of: every computed figure covers its formula, and not by much."""

from pathlib import Path

import pytest
import yaml

from subnet.config import RunConfig, load_run, run_names
from subnet.model.presets import parameter_count

STATED = yaml.safe_load((Path(__file__).parents[1] / "min_compute.yml").read_text(encoding="utf-8"))
RUNS, BEYOND_ONE_GPU = STATED["runs"], STATED["beyond_one_gpu"]
ONE_GPU_GB = 80
SECONDS_PER_BLOCK = {"demo": 0.25, "10m": 12, "150m": 12, "1b": 12}
PEERS, VALIDATORS = 16, 4


def covers(stated: float, computed: float) -> bool:
    """Rounded up, by at most a half again and one unit."""
    return computed <= stated <= 1.5 * computed + 1


def gpu_gb(run: RunConfig) -> float:
    tokens = run.train.micro_batch * run.model.seq_len
    activations = 34 * run.model.hidden_size * tokens * run.model.num_layers + 14 * run.model.vocab_size * tokens
    return 0.5 + (16 * parameter_count(run.model) + activations) / 1e9


def test_every_shipped_run_is_listed() -> None:
    assert sorted([*RUNS, *BEYOND_ONE_GPU]) == run_names()


@pytest.mark.parametrize("name", BEYOND_ONE_GPU)
def test_what_is_called_beyond_one_gpu_is(name: str) -> None:
    assert gpu_gb(load_run(name)) > ONE_GPU_GB


@pytest.mark.parametrize("name", RUNS)
def test_parameters_and_phases_are_those_of_the_run(name: str) -> None:
    run, stated = load_run(name), RUNS[name]
    assert (stated["preset"], stated["parameters"]) == (run.model.preset, parameter_count(run.model))
    cpu = stated["miner"]["cpu"]
    if "inner_steps_per_round" in cpu:
        assert cpu["inner_steps_per_round"] == run.train.inner_steps
        assert cpu["training_seconds_per_round"] == run.rounds.train_end * SECONDS_PER_BLOCK[name]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("role", ["miner", "validator"])
def test_memory_and_disk(name: str, role: str) -> None:
    run, stated = load_run(name), RUNS[name][role]
    parameters = parameter_count(run.model)
    snapshots = run.train.inner_steps // run.scoring.replay_steps + 1 if role == "miner" else 0
    assert stated["disk_gb"] >= (40 + 36 * snapshots) * parameters / 1e9
    if "gpu" in stated:
        assert covers(stated["memory_gb"], 1 + 24 * parameters / 1e9)
        assert covers(stated["gpu"]["gpu_memory_gb"], gpu_gb(run))


@pytest.mark.parametrize("name", [name for name in RUNS if name != "demo"])
def test_links(name: str) -> None:
    run = load_run(name)
    rounds, block = run.rounds, SECONDS_PER_BLOCK[name]
    assert (run.codec.name, run.codec.block) == ("int4", 128)
    megabits = parameter_count(run.model) * 4.07 / 1e6
    share = (PEERS - 1) / PEERS
    scatter, gather = (rounds.scatter_end - rounds.roster_end) * block, (rounds.gather_end - rounds.scatter_end) * block
    miner, validator = RUNS[name]["miner"]["network"], RUNS[name]["validator"]["network"]
    assert covers(miner["down_mbit_s"], megabits * share / min(scatter, gather))
    assert covers(miner["up_mbit_s"], megabits * (share + VALIDATORS / PEERS) / gather)
    assert covers(validator["down_mbit_s"], megabits * PEERS / (rounds.train_end * block))
