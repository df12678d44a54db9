from hypothesis import given
from hypothesis import strategies as st

from subnet.config import load_run
from subnet.exchange.window import Window

ROUNDS = load_run("demo").rounds


@given(st.integers(min_value=0, max_value=2**40))
def test_every_block_is_in_exactly_the_window_that_names_it(block):
    window = Window.at(ROUNDS, block)
    assert window.start <= block < window.end
    assert window == Window.of_round(ROUNDS, window.round)
    assert Window.of_round(ROUNDS, window.round + 1).start == window.end


def test_deadlines_follow_the_protocol_order():
    window = Window.of_round(ROUNDS, 3)
    order = [window.start, window.train_end, window.commit_end, window.roster_end]
    order += [window.scatter_end, window.gather_end, window.end]
    assert order == sorted(set(order))
