from subnet.swarm.traffic import Bucket


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
