import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnet.chain.keys import hotkey_from_uri, verify
from subnet.config import load_run
from subnet.exchange.commitment import Commitment, norm_limit, open_commitment
from subnet.swarm.records import BadRecord, open_record, sign_record

RUN = load_run("demo")
RUN_ID = b"r" * 32
ALICE = hotkey_from_uri("//Alice")
GOOD = Commitment(ALICE.ss58, b"c" * 32, 1.5, 1024, 1, b"s" * 32)


def opened(body):
    signed = sign_record(ALICE, "commit", RUN_ID, 7, body)
    record = open_record(signed.pack(), run_id=RUN_ID, verify=verify)
    return open_commitment(record, RUN)


def test_a_commitment_survives_the_wire():
    assert opened(GOOD.body()) == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"root": b"short"},
        {"state": "text"},
        {"norm": float("nan")},
        {"norm": float("inf")},
        {"norm": -1.0},
        {"norm": 1},
        {"norm": 1.001 * norm_limit(RUN)},
        {"steps": 0},
        {"steps": RUN.train.inner_steps + 1},
        {"steps": True},
        {"tokens": 0},
        {"tokens": RUN.train.batch_size * RUN.model.seq_len + 1},
        {"rate": -1},
        {"rate": 2**24 + 1},
        {"rate": 1.0},
        {"trace": b"short"},
        {"trace": "text"},
        {"extra": 1},
    ],
)
def test_what_a_round_cannot_give_is_refused(change):
    with pytest.raises(BadRecord):
        opened(GOOD.body() | change)


VALUES = st.one_of(st.integers(0, 9), st.binary(max_size=40), st.floats())


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_junk_bodies_are_refused_and_nothing_else_happens(body):
    with pytest.raises(BadRecord):
        opened(body)


def test_a_missing_field_is_refused():
    for field in dataclasses.fields(Commitment):
        if field.name != "hotkey":
            with pytest.raises(BadRecord):
                opened({k: v for k, v in GOOD.body().items() if k != field.name})
