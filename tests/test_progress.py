"""Long work is told now and then, amounts in a unit that fits."""

import pytest

from subnet.progress import Progress, size


def test_progress_is_told_once_a_second_and_at_the_end():
    clock = [100.0]
    told = []
    progress = Progress(lambda done, total: told.append((done, total)), now=lambda: clock[0])
    for done in range(1000):
        progress(done, 999)
        clock[0] += 0.01
    assert len(told) == 11
    assert told[0] == (0, 999) and told[-1] == (999, 999)
    progress(999, 999)  # whatever is empty at the end
    assert len(told) == 11


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (99_960, "100 kB"), (999_600, "1.0 MB"),
     (5_600_000_000, "5.6 GB"), (7e12, "7000 GB")],
)  # fmt: skip
def test_bytes_for_people(num_bytes, text):
    assert size(num_bytes) == text
