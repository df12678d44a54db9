from subnet.swarm.traffic import UNKNOWN_RATE, Bucket, Upload


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


def test_an_upload_rate_counts_only_the_time_in_which_something_is_sent() -> None:
    now = 0.0
    upload = Upload(lambda: now)
    with upload.sending() as sent:
        now += 1.0
        sent(4_000_000)
    assert upload.rate == UNKNOWN_RATE
    now += 100.0
    with upload.sending() as sent, upload.sending() as beside:
        now += 1.0
        sent(6_000_000)
        beside(6_000_000)
        assert upload.rate == 4096  # 16 MB in 2 s, rounded down to a power of two
    assert upload.rate == 4096
    for _ in range(20):
        with upload.sending() as sent:
            now += 10.0
            sent(20_000_000)
    assert upload.rate == 1024  # what was long ago fades
