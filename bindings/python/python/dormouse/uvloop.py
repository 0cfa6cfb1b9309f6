"""TLS for uvloop: an event loop of uvloop whose methods take a `dormouse.SSLContext` as `ssl=`."""

from __future__ import annotations

from typing import Any, Coroutine, Optional, TypeVar

import uvloop

from ._loop import TLSLoop
from .asyncio import run_with

__all__ = ["EventLoop", "new_event_loop", "run"]

T = TypeVar("T")


class EventLoop(TLSLoop, uvloop.Loop):  # type: ignore[misc]
    """An event loop of uvloop whose methods take a `dormouse.SSLContext` as `ssl=`."""


def new_event_loop() -> EventLoop:
    """Return a new event loop, for `asyncio.Runner(loop_factory=…)` and uvicorn's `loop=`."""
    return EventLoop()


def run(main: Coroutine[Any, Any, T], *, debug: Optional[bool] = None) -> T:
    """Do what `uvloop.run()` does, with this module's event loop."""
    return run_with(new_event_loop, main, debug)


def __getattr__(name: str) -> Any:
    # Created on request: newer versions of Python warn about policies.
    if name != "EventLoopPolicy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    class EventLoopPolicy(uvloop.EventLoopPolicy):
        """A policy for `asyncio.set_event_loop_policy()`."""

        def _loop_factory(self) -> EventLoop:
            return EventLoop()

    globals()[name] = EventLoopPolicy
    return EventLoopPolicy
