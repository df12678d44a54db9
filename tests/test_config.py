"""The run configuration: strict, canonical, and precise in what it says is wrong."""

import dataclasses
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet import config
from subnet.config import ConfigError, RunConfig, first_difference, from_bytes, load_run, run_id, to_bytes
from subnet.errors import UserError

# A run with every field given. Its canonical form and hash are what two versions of the software must agree on.
GOLDEN_TOML = """
name = "golden"
seed = 7
protocol = 1
[model]
preset = "custom"
vocab_size = 264
hidden_size = 64
intermediate_size = 128
num_layers = 2
num_heads = 4
num_kv_heads = 2
seq_len = 32
rope_theta = 10000.0
tie_embeddings = true
[data]
source = "stdlib"
tokenizer = "bytes"
path = "/only/here"
manifest = ""
held_out = 0.02
[train]
inner_steps = 4
batch_size = 8
micro_batch = 4
lr = 1e-3
optimizer = "muon"
muon_momentum = 0.9
betas = [0.9, 0.95]
eps = 1e-8
weight_decay = 0.1
warmup_steps = 2
decay_steps = 100
min_lr_ratio = 0.1
grad_clip = 1
[outer]
lr = 0.7
momentum = 0.5
nesterov = true
[codec]
name = "int8"
block = 256
error_feedback_decay = 1.0
leaf_size = 4096
[rounds]
blocks = 60
train_end = 30
commit_end = 35
roster_end = 40
scatter_end = 48
gather_end = 55
leader_blocks = 2
delay = 1
max_members = 16
newcomers = 2
min_incentive_earners = 3
[scoring]
samples_own = 8
samples_held_out = 16
eval_lr = 0.5
evident_z = 2.0
openskill_beta = 4.0
openskill_tau = 0.125
evidence_decay = 0.8
min_evidence = 1.0
audit_rate = 0.25
replay_rate = 0.0625
replay_steps = 2
replay_penalty = 20
burn = 0.0
[aggregate]
rule = "centered_clip"
radius = 1.5
iterations = 4
redundancy = 2
"""

GOLDEN_LENGTH = 1506
GOLDEN_RUN_ID = "7e18ad13860a0364f24c035bbe2b2a194c164a021e6bfdadae20564cc91a28be"


def golden() -> RunConfig:
    return config.parse_toml(GOLDEN_TOML.encode())


def edited(old: str, new: str) -> str:
    assert old in GOLDEN_TOML
    return GOLDEN_TOML.replace(old, new)


def test_golden_vector() -> None:
    form = to_bytes(golden())
    assert len(form) == GOLDEN_LENGTH
    assert run_id(golden()).hex() == GOLDEN_RUN_ID


def test_canonical_form_is_a_sorted_flat_map_without_node_local_fields() -> None:
    table = msgpack.unpackb(to_bytes(golden()))
    assert list(table) == sorted(table)
    assert table["train.grad_clip"] == 1.0 and isinstance(table["train.grad_clip"], float)
    assert "data.path" not in table


@pytest.mark.parametrize("name", config.run_names())
def test_shipped_runs_load_and_survive_the_wire(name: str) -> None:
    cfg = load_run(name)
    assert cfg.name == name
    assert from_bytes(to_bytes(cfg)) == cfg


def test_the_shipped_runs() -> None:
    assert config.run_names() == ["10b", "10m", "150m", "1b", "30b", "4b", "50b", "70b", "demo"]


def test_run_id_ignores_the_node_and_sees_everything_else() -> None:
    cfg = golden()
    elsewhere = dataclasses.replace(cfg, data=dataclasses.replace(cfg.data, path="/elsewhere"))
    assert run_id(elsewhere) == run_id(cfg)
    for section in dataclasses.fields(cfg):
        value = getattr(cfg, section.name)
        if not dataclasses.is_dataclass(value):
            continue
        table = msgpack.unpackb(to_bytes(cfg))
        for field in dataclasses.fields(value):
            assert f"{section.name}.{field.name}" in table or f"{section.name}.{field.name}" in config.NODE_LOCAL


def test_first_difference_names_the_field() -> None:
    cfg = golden()
    other = dataclasses.replace(cfg, train=dataclasses.replace(cfg.train, lr=0.002))
    assert first_difference(cfg, other) == "train.lr: 0.001 here, 0.002 there"
    assert first_difference(cfg, cfg) is None
    elsewhere = dataclasses.replace(cfg, data=dataclasses.replace(cfg.data, path="/elsewhere"))
    assert first_difference(cfg, elsewhere) is None


def test_with_manifest_fills_once_and_refuses_another() -> None:
    cfg = config.with_manifest(golden(), "ab" * 32)
    assert cfg.data.manifest == "ab" * 32
    assert config.with_manifest(cfg, "ab" * 32) == cfg
    with pytest.raises(ConfigError, match=r"^data\.manifest is abab.* but this node's data has cdcd"):
        config.with_manifest(cfg, "cd" * 32)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lr = 1e-3", "lr = 'fast'", "train.lr must be a number, got 'fast'"),
        ("lr = 1e-3", "lr = true", "train.lr must be a number, got True"),
        ("lr = 1e-3", "lr = nan", "train.lr must be a finite number, got nan"),
        ("lr = 1e-3", "lr = -1.0", "train.lr must be in (0, 1000000000000.0], got -1.0"),
        ("lr = 1e-3", "", "train.lr is missing"),
        ("lr = 1e-3", "lr = 1e-3\nlearning_rate = 1", "[train] has an unknown key 'learning_rate'; known: inner_steps"),
        ("batch_size = 8", "batchsize = 8", "[train] has an unknown key 'batchsize'; did you mean 'batch_size'?"),
        ("inner_steps = 4", "inner_steps = 4.0", "train.inner_steps must be a whole number, got 4.0"),
        ("micro_batch = 4", "micro_batch = 3", "train.micro_batch must divide batch_size (8), got 3"),
        ("betas = [0.9, 0.95]", "betas = [0.9]", "train.betas must be a list of 2 numbers, got a list of 1"),
        ("betas = [0.9, 0.95]", "betas = [0.9, 1.0]", "train.betas must be in [0, 1), got 1.0"),
        ("nesterov = true", "nesterov = 1", "outer.nesterov must be true or false, got 1"),
        (
            'name = "int8"',
            'name = "int7"',
            "codec.name must be one of 'fp32', 'fp16', 'int8', 'int4', 'sparse', got 'int7'",
        ),
        ('name = "int8"\nblock = 256', 'name = "int4"\nblock = 257', "codec.block must be even for int4, got 257"),
        ("block = 256", "block = 256\ntop_k = 4097", "codec.top_k must be at most chunk (4096), got 4097"),
        ("block = 256", "chunk = 128", "codec.reduced_top_k must be at most chunk (128), got 256"),
        ("commit_end = 35", "commit_end = 30", "rounds.commit_end must be above train_end (30), got 30"),
        ("gather_end = 55", "gather_end = 60", "rounds.blocks must be above gather_end (60), got 60"),
        ("newcomers = 2", "newcomers = 17", "rounds.newcomers must be at most max_members (16), got 17"),
        (
            "hidden_size = 64",
            "hidden_size = 60",
            "model.hidden_size must be num_heads (4) times an even number, got 60",
        ),
        ("num_kv_heads = 2", "num_kv_heads = 3", "model.num_kv_heads must divide num_heads (4), got 3"),
        ("vocab_size = 264", "vocab_size = 260", "model.vocab_size must be a multiple of 8, got 260"),
        (
            "vocab_size = 264",
            "vocab_size = 256",
            "model.vocab_size must be at least 258 for the bytes tokenizer, got 256",
        ),
        ('manifest = ""', 'manifest = "xyz"', "data.manifest must be \"\" or 64 lower-case hex digits, got 'xyz'"),
        (
            'tokenizer = "bytes"',
            'tokenizer = "../t.json"',
            'data.tokenizer must be "bytes" or a file name ending in .json',
        ),
        (
            'preset = "custom"',
            'preset = "huge"',
            "model.preset must be one of custom, tiny, 10m, 150m, 1b, 4b, 10b, 30b, 50b, 70b, got 'huge'",
        ),
        ("[scoring]", "[scorings]", "has an unknown key 'scorings'; did you mean 'scoring'?"),
        ("seed = 7", "seed = 7\nmodel = 3", "not valid TOML: "),
        (
            "seed = 7",
            f"seed = 0x{'f' * 5000}",
            "seed must be in [0, 9223372036854775807], got an integer of 20000 bits",
        ),
        ('name = "golden"', 'name = "Golden run"', "name must be 1 to 64 of a-z, 0-9"),
        ('name = "golden"', 'name = "a\\nb"', "name must be printable"),
    ],
)
def test_a_mistake_gets_one_precise_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(edited(old, new))
    with pytest.raises(ConfigError) as caught:
        load_run(file)
    text = str(caught.value)
    assert text.startswith(f"{file}: {message}")
    assert "\n" not in text and len(text) < len(str(file)) + 500


def test_config_errors_are_user_errors() -> None:
    assert issubclass(ConfigError, UserError) and issubclass(ConfigError, ValueError)


def test_a_preset_fills_and_explicit_fields_win(tmp_path: Path) -> None:
    start = GOLDEN_TOML.index("[model]")
    stop = GOLDEN_TOML.index("[data]")
    file = tmp_path / "p.toml"
    file.write_text(GOLDEN_TOML[:start] + '[model]\npreset = "tiny"\nseq_len = 64\n' + GOLDEN_TOML[stop:])
    model = load_run(file).model
    assert (model.seq_len, model.hidden_size) == (64, 192)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run named 'demos'; known: .*demo"):
        load_run("demos")
    for path in (tmp_path, tmp_path / "none.toml", Path("a\0b.toml")):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_run(path)
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * (config.MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load_run(big)
    deep = tmp_path / "deep.toml"
    deep.write_text("a = " + "[" * 30_000)
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_run(deep)


def test_ranges_hold_for_configurations_made_in_code() -> None:
    with pytest.raises(ConfigError, match=r"train\.lr must be in"):
        dataclasses.replace(golden().train, lr=0.0)


# -0.0 and integers for floats must not give two run ids to equal runs
def test_equal_runs_have_equal_ids() -> None:
    assert run_id(config.parse_toml(edited("burn = 0.0", "burn = -0.0").encode())) == run_id(golden())
    assert run_id(config.parse_toml(edited("burn = 0.0", "burn = 0").encode())) == run_id(golden())


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**63, max_value=2**64 - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=8),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@settings(max_examples=60, deadline=None)
@given(raw=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda s: s.encode("utf-8", "replace"))))
def test_any_junk_is_a_config_error(raw: bytes) -> None:
    with pytest.raises(ConfigError):
        config.parse_toml(raw)


LINES = GOLDEN_TOML.strip().splitlines()
TOML_VALUES = [
    "",
    "0",
    "-1",
    "1e400",
    "nan",
    "inf",
    "true",
    '"x"',
    "[]",
    "{}",
    "[1, 2]",
    "[[1]]",
    "1979-05-27",
    "0x" + "f" * 300,
]


@settings(max_examples=80, deadline=None)
@given(
    line=st.integers(0, len(LINES) - 1),
    value=st.sampled_from(TOML_VALUES),
    key=st.sampled_from(["", "x", '"a\\nb"', '"\\u0000"', "a.b", "model"]),
)
def test_any_edited_line_is_a_run_or_a_config_error(line: int, value: str, key: str) -> None:
    name, _, _ = LINES[line].partition(" = ")
    lines = [*LINES[:line], f"{key or name} = {value}" if "[" not in name or key else name, *LINES[line + 1 :]]
    try:
        assert isinstance(config.parse_toml("\n".join(lines).encode()), RunConfig)
    except ConfigError as e:
        assert "\n" not in str(e)


@settings(max_examples=60, deadline=None)
@given(key=st.sampled_from(sorted(msgpack.unpackb(to_bytes(golden())))), value=values)
def test_any_wire_value_is_a_run_or_a_config_error(key: str, value: object) -> None:
    table = {**msgpack.unpackb(to_bytes(golden())), key: value}
    try:
        raw = msgpack.packb(table, use_bin_type=True)
    except (OverflowError, ValueError, UnicodeEncodeError):
        return
    try:
        cfg = from_bytes(raw)
    except ConfigError as e:
        assert "\n" not in str(e)
    else:
        assert to_bytes(cfg) == raw


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=100))
def test_any_wire_junk_is_a_config_error(raw: bytes) -> None:
    with pytest.raises(ConfigError):
        from_bytes(raw)


def test_wire_form_must_be_canonical_and_bounded() -> None:
    table = msgpack.unpackb(to_bytes(golden()))
    shuffled = msgpack.packb(dict(reversed(table.items())))
    with pytest.raises(ConfigError, match="canonical"):
        from_bytes(shuffled)
    with pytest.raises(ConfigError, match="msgpack"):
        from_bytes(to_bytes(golden()) + b"\0")
    with pytest.raises(ConfigError, match="larger than"):
        from_bytes(b"\0" * (config.MAX_BYTES + 1))
