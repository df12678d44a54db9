"""Cancellation is never lost: neither by a wait with a time limit nor by whoever swallows the first one."""

import asyncio

import pytest

from subnet.waiting import end, timeout


def test_a_cancellation_that_comes_as_the_work_completes_is_not_lost():
    async def act():
        done = asyncio.get_running_loop().create_future()

        async def work():
            async with timeout(60.0):
                await done
            await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        done.set_result(None)
        task.cancel()
        _, waiting = await asyncio.wait({task}, timeout=10.0)
        assert not waiting and task.cancelled()

    asyncio.run(act())


def test_time_runs_out():
    async def act():
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(0.01):
                await asyncio.Event().wait()

    asyncio.run(act())


def test_end_insists():
    async def act():
        started = asyncio.Event()

        async def deaf():
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        async def broken():
            raise ValueError("ended on its own")

        tasks = [asyncio.ensure_future(deaf()), asyncio.ensure_future(broken())]
        await started.wait()
        await asyncio.wait_for(end(tasks), 10.0)
        assert tasks[0].cancelled() and isinstance(tasks[1].exception(), ValueError)

    asyncio.run(act())
