"""A simulated process: it has tasks and connections, and can be killed between any two steps."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from goqueue.testing.sim.loop import OWNER, SimLoop
from goqueue.testing.sim.network import SimNetwork

T = TypeVar("T")


class Host:
    """Owns what its tasks begin, until it is killed."""

    def __init__(self, name: str, loop: SimLoop, network: SimNetwork) -> None:
        self.name = name
        self.is_dead = False
        self.paused_until = 0.0
        self._loop = loop
        self._network = network
        self._context = copy_context()
        self._context.run(OWNER.set, self)

    def __repr__(self) -> str:
        return f"<Host {self.name}{' dead' if self.is_dead else ''}>"

    @property
    def context(self) -> Context:
        """Where callbacks of this process run."""
        return self._context

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task of this process."""
        return self._loop.create_task(work, context=self._context.copy())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in this process and return its result; called from outside of it."""
        task = self.begin(work)
        done: asyncio.Future[None] = self._loop.create_future()

        def ended(_: object) -> None:
            if not done.done():
                done.set_result(None)

        task.add_done_callback(ended, context=copy_context())
        await done
        return task.result()

    def pause(self, seconds: float) -> None:
        """Stop it for a while as SIGSTOP does: it keeps its connections and says nothing."""
        self._loop.pause_callbacks_of(self, seconds)

    def kill(self) -> None:
        """End it as SIGKILL does: nothing of it runs any more, its connections are reset."""
        self.is_dead = True
        self._loop.stop_callbacks_of(self)
        self._network.drop_process(self)
