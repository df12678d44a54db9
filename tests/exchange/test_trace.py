"""Traces on the wire: what inner steps can give passes, everything else is refused."""

import math
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.config import load_run
from subnet.exchange.trace import Mark, Trace, most_bytes, open_trace, rounded
from subnet.swarm.records import BadRecord

DEMO = load_run("demo")
RUN = replace(DEMO, scoring=replace(DEMO.scoring, replay_steps=4))
EAGER = replace(RUN, rounds=replace(RUN.rounds, delay=1))
LOSSES = rounded([5.5, math.nan, 5.25, 5.125, 5.0, 4.9])
MARKS = (Mark(0, 30, 15, b"a" * 32), Mark(3, 33, 17, b"b" * 32), Mark(6, 36, 20, b"c" * 32))
GOOD = Trace(LOSSES, MARKS)


def same(a: Trace, b: Trace) -> bool:
    return repr(a) == repr(b)  # a NaN is not equal to itself


def test_a_trace_survives_the_wire():
    assert same(open_trace(GOOD.pack(), RUN), GOOD)
    assert GOOD.steps == 5 and [GOOD.segment(n) for n in range(6)] == [0, 0, 0, 1, 1, 1]
    joined = replace(GOOD, joined=2)
    assert same(open_trace(joined.pack(), EAGER), joined)


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, losses=()),
        replace(GOOD, losses=(*LOSSES[:5], math.inf)),
        replace(GOOD, losses=(*LOSSES, 4.8)),
        replace(GOOD, marks=MARKS[:1]),
        replace(GOOD, marks=(MARKS[0], MARKS[2])),
        replace(GOOD, marks=(MARKS[0], MARKS[1], MARKS[1], MARKS[2])),
        replace(GOOD, marks=MARKS[1:]),
        replace(GOOD, marks=(*MARKS[:2], replace(MARKS[2], root=b"short"))),
        replace(GOOD, marks=(*MARKS[:2], replace(MARKS[2], adam_step=-1))),
        replace(GOOD, marks=(*MARKS[:2], replace(MARKS[2], lr_step=2**48))),
        replace(GOOD, joined=1),
        replace(GOOD, joined=-1),
    ],
)
def test_what_inner_steps_cannot_give_is_refused(bad: Trace):
    with pytest.raises(BadRecord):
        open_trace(bad.pack(), RUN)


def test_more_steps_than_a_round_has_are_refused():
    steps = RUN.train.inner_steps + 1
    marks = tuple(Mark(min(at, steps), 0, 0, b"a" * 32) for at in range(0, steps + 4, 4))
    with pytest.raises(BadRecord, match="losses"):
        open_trace(Trace(rounded([5.0] * steps), marks).pack(), RUN)


def test_an_honest_trace_of_most_snapshots_fits():
    run = replace(RUN, train=replace(RUN.train, inner_steps=256), scoring=replace(RUN.scoring, replay_steps=1))
    marks = tuple(Mark(at, 2**47, 2**47, b"a" * 32) for at in range(257))
    trace = Trace(rounded([1.0] * 256), marks)
    assert len(trace.pack()) <= most_bytes(run) and same(open_trace(trace.pack(), run), trace)
    with pytest.raises(BadRecord, match="size"):
        open_trace(b"\0" * (most_bytes(run) + 1), run)


SCALARS = st.one_of(st.integers(-5, 2**60), st.binary(max_size=40), st.booleans())
PACKED = st.recursive(SCALARS, lambda x: st.lists(x, max_size=4), max_leaves=12).map(msgpack.packb)


@settings(max_examples=50)
@given(st.one_of(st.binary(max_size=60), PACKED))
def test_junk_is_refused_and_nothing_else_happens(data: bytes):
    with pytest.raises(BadRecord):
        open_trace(data, RUN)
