"""What a neuron does before it joins anything."""

import logging
from dataclasses import replace

import pytest

from subnet import neuron
from subnet.config import NodeConfig, load_run, run_id
from subnet.data.shards import MANIFEST
from subnet.diloco import checkpoint
from subnet.errors import UserError


def test_shards_are_the_users_and_building_them_is_told_in_few_lines(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i in range(300):
        (corpus / f"{i}.txt").write_text("Every file is a document of its own.\n" * 30)
    demo = load_run("demo")
    run = replace(demo, data=replace(demo.data, source="folder"))
    with caplog.at_level(logging.INFO):
        for home in ("a", "elsewhere/b"):
            neuron._prepare(run, NodeConfig(home=tmp_path / home, data_path=corpus))
    assert len(list((tmp_path / "user" / ".sn38" / "data").glob(f"*/{MANIFEST}"))) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus", "user"]
    lines = [r.getMessage() for r in caplog.records if "tokenising" in r.getMessage()]
    assert 1 <= len(lines) <= 20 and lines[-1] == "tokenising: 333 kB of 333 kB"


def test_a_checkpoint_is_resumed_on_its_own_run_and_chain_only(tmp_path):
    run, node = load_run("demo"), NodeConfig(home=tmp_path)
    layout = neuron.layout_of(run)
    assert neuron._resume(node, run, b"chain", layout) is None
    meta = {"run_id": run_id(run).hex(), "chain": b"chain".hex(), "round": 7}
    checkpoint.save(tmp_path / neuron.CHECKPOINTS, neuron.genesis(run, layout), None, {}, meta)
    saved = neuron._resume(node, run, b"chain", layout)
    assert saved is not None and saved.meta == meta
    with pytest.raises(UserError, match="another chain"):
        neuron._resume(node, run, b"afresh", layout)
    with pytest.raises(UserError, match="another run"):
        neuron._resume(node, replace(run, seed=1), b"chain", layout)
