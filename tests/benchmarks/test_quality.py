"""The quality study's own arithmetic: nothing is lost between miners, bytes are the formulas', cells are found."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from subnet.config import CodecConfig, DataConfig
from subnet.data.prepare import prepare
from subnet.diloco.aggregate import mean_weights, norm
from subnet.diloco.codec import Fp32, codec_of
from subnet.diloco.feedback import ErrorFeedback
from subnet.diloco.layout import Layout
from subnet.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
MINERS = 4


@pytest.fixture(scope="module", autouse=True)
def on_path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def exchange() -> ModuleType:
    return importlib.import_module("quality_study.exchange")


@pytest.fixture
def layout() -> Layout:
    return Layout({"a": (64, 40), "b": (8,), "c": (16, 24)}, 512)


def deltas(layout: Layout) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(layout.numel, generator=generator) for _ in range(MINERS)]


CODECS = [CodecConfig(name="int8"), CodecConfig(name="int4"), CodecConfig(name="sparse")]


@pytest.mark.parametrize(("cfg", "kept_by"), list(product(CODECS, ["reducer", "senders"])), ids=str)
def test_what_was_sent_is_in_the_average_or_still_owed(
    exchange: ModuleType, layout: Layout, cfg: CodecConfig, kept_by: str
) -> None:
    codec, given = codec_of(cfg), deltas(layout)
    feedbacks = [ErrorFeedback(layout.numel) for _ in given]
    sent = [exchange.contribute(codec, layout, f, d, 100) for f, d in zip(feedbacks, given, strict=True)]
    for feedback, contribution, delta in zip(feedbacks, sent, given, strict=True):
        torch.testing.assert_close(feedback.residual + contribution.sent, delta)
    averaged = exchange.average(layout, sent, codec, "all", kept_by)
    weights = mean_weights([100] * MINERS, [norm(c.sent) for c in sent])
    taken = sum(w * (c.sent - o) for w, c, o in zip(weights, sent, averaged.owed, strict=True))
    torch.testing.assert_close(taken, averaged.delta)
    if kept_by == "senders":
        silent = averaged.delta == 0
        for contribution, owed in zip(sent, averaged.owed, strict=True):
            assert torch.equal(owed[silent], contribution.sent[silent])


def test_without_compression_everybody_gets_the_mean_and_the_bytes_are_those_of_the_parameters(
    exchange: ModuleType, layout: Layout
) -> None:
    given = deltas(layout)
    equal = [d / norm(d) for d in given]  # the clip to the median norm leaves these alone
    sent = [exchange.contribute(Fp32(), layout, ErrorFeedback(layout.numel), d, 7) for d in equal]
    averaged = exchange.average(layout, sent, Fp32(), "all", "reducer")
    torch.testing.assert_close(averaged.delta, sum(equal) / MINERS)
    payload = 4 * layout.numel * (MINERS - 1) / MINERS
    assert averaged.gather_bytes == payload + 32 * (MINERS - 1)
    assert payload < averaged.scatter_bytes <= payload + 32 * (1 + (MINERS - 1) * 2 * layout.num_leaves.bit_length())
    assert exchange.ring_bytes(layout.numel, MINERS) == 2 * payload


def test_over_senders_a_lone_value_counts_whole(exchange: ModuleType, layout: Layout) -> None:
    lone = [torch.zeros(layout.numel) for _ in range(MINERS)]
    for index, x in enumerate(lone):
        x[index] = 1.0
    sent = [exchange.contribute(Fp32(), layout, ErrorFeedback(layout.numel), x, 7) for x in lone]
    assert exchange.average(layout, sent, Fp32(), "senders", "senders").delta[:MINERS].tolist() == [1.0] * MINERS
    assert exchange.average(layout, sent, Fp32(), "all", "senders").delta[:MINERS].tolist() == [0.25] * MINERS


def test_a_cell_runs_the_same_way_twice_and_learns(tmp_path: Path) -> None:
    cells, simulate = (importlib.import_module(f"quality_study.{name}") for name in ("cells", "simulate"))
    folder = tmp_path / "text"
    folder.mkdir()
    words = np.random.default_rng(0).choice(["round ", "miner ", "block\n"], 40_000)
    (folder / "a.txt").write_text("".join(words))
    shards = prepare(DataConfig(source="folder", path=str(folder)), tmp_path / "cache", 128)
    cell = cells.Cell("diloco", 4e-3, h=6, codec="int8", reduced="int8", steps=12)
    first, again = simulate.run(cell, shards), simulate.run(cell, shards)
    assert first["losses"] == again["losses"]
    assert [step for step, _ in first["losses"]] == [6, 12]
    assert first["losses"][-1][1] < np.log(264)
    assert first["tokens"] == 12 * 4 * 4 * 128
    ddp = simulate.run(replace(cell, method="ddp", inner="muon"), shards)
    assert [step for step, _ in ddp["losses"]] == [2, 4, 6, 8, 10, 12]
    assert ddp["losses"][-1][1] < ddp["losses"][0][1]


def test_every_cell_of_the_grid_is_in_the_results_and_the_table(tmp_path: Path) -> None:
    names = ("quality", "quality_study.grid", "quality_study.table")
    quality, grid, table = map(importlib.import_module, names)
    results = quality.read(quality.RESULTS)
    assert set(grid.cells()) <= results.keys()
    shown = table.tables(results)
    assert shown and shown in (ROOT / "docs" / "quality.md").read_text()
    broken = tmp_path / "results.jsonl"
    broken.write_text(json.dumps({"cell": {"method": "ddp"}}) + "\n")
    with pytest.raises(UserError, match=r"results.jsonl:1 "):
        quality.read(broken)
