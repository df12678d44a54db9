from hypothesis import given
from hypothesis import strategies as st

from subnet.swarm.traffic import MAX_RATE, UNKNOWN_RATE, Bucket, Upload, quantised


def test_bytes_go_into_debt_that_has_to_be_waited_for() -> None:
    bucket = Bucket.full(rate=100.0, burst=500.0, now=0.0)
    assert bucket.take(400.0, 0.0) == 0.0
    assert bucket.take(300.0, 0.0) == 2.0
    assert bucket.take(0.0, 2.0) == 0.0
    assert bucket.take(100.0, 3.0) == 0.0
    assert bucket.take(500.0, 1000.0) == 0.0
    assert bucket.take(1.0, 1000.0) == 0.01


def test_requests_are_refused_without_debt() -> None:
    bucket = Bucket.full(rate=2.0, burst=3.0, now=0.0)
    assert [bucket.allows(0.0) for _ in range(5)] == [True, True, True, False, False]
    assert bucket.allows(0.5)
    assert not bucket.allows(0.5)


class Sender:
    """Sends at rates of its choice, in time of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.upload = Upload(lambda: self.now)

    def send(self, rate: float, seconds: float) -> None:
        """`rate` in kB/s, in pieces of a tenth of a second."""
        with self.upload.sending() as sent:
            for _ in range(round(10 * seconds)):
                self.now += 0.1
                sent(round(100 * rate))


def test_an_upload_rate_counts_only_the_time_in_which_something_is_sent() -> None:
    sender = Sender()
    sender.send(1000, 7.0)
    assert sender.upload.rate == UNKNOWN_RATE  # of too little
    for _ in range(3):
        sender.now += 100.0
        sender.send(1000, 7.0)
    assert sender.upload.rate == 896


def test_streams_beside_each_other_share_the_time() -> None:
    sender = Sender()
    with sender.upload.sending() as sent, sender.upload.sending() as beside:
        for _ in range(40):
            sender.now += 0.1
            sent(200_000)
            beside(200_000)
    assert sender.upload.rate == 3584  # 4,000 kB/s, less what settling takes, in three binary digits


def test_a_receiver_that_is_slow_to_take_it_makes_nobody_else_look_slow() -> None:
    sender = Sender()
    for _ in range(3):
        sender.send(10_000, 1.5)
        sender.send(300, 20.0)
    assert sender.upload.rate == 7168  # on average it is 980


def test_buffers_that_take_the_first_bytes_at_once_make_nobody_look_fast() -> None:
    sender = Sender()
    for _ in range(3):
        with sender.upload.sending() as sent:
            sent(3_000_000)
            for _ in range(80):
                sender.now += 0.1
                sent(100_000)
    assert sender.upload.rate <= 1024
    burst = Sender()
    for _ in range(100):
        with burst.upload.sending() as sent:
            sent(200_000)
    assert 1500 < burst.upload.rate <= 2000  # a buffer is not a link without end


def test_what_was_long_ago_is_forgotten() -> None:
    sender = Sender()
    sender.send(10_000, 40.0)
    assert sender.upload.rate == 8192
    sender.send(1000, 40.0)
    assert sender.upload.rate == 896


@given(st.integers(0, 2**40))
def test_rates_are_declared_in_few_digits(rate: int) -> None:
    told = quantised(rate)
    assert UNKNOWN_RATE < told <= MAX_RATE and quantised(told) == told
    assert told == MAX_RATE or rate < 2 or rate * 0.8 <= told <= rate
