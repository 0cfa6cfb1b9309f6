"""The data of a transport that exists only while something is in flight."""

from __future__ import annotations

import asyncio
from typing import List, Optional


class Flight:
    """A transport's data while something is in flight: a handshake, a close, an export."""

    __slots__ = ("waiter", "timer", "backlog", "held", "holds_end", "drained", "error")

    def __init__(self) -> None:
        self.waiter: Optional[asyncio.Future[None]] = None
        self.timer: Optional[asyncio.TimerHandle] = None
        # Data written before the handshake was done.
        self.backlog: List[bytes] = []
        # Plaintext received while the program has paused reading; and whether the end has arrived.
        self.held: List[bytes] = []
        self.holds_end = False
        self.drained: Optional[asyncio.Future[None]] = None
        self.error: Optional[BaseException] = None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def is_empty(self) -> bool:
        """Return whether the flight holds nothing any more."""
        return not (self.timer or self.held or self.holds_end or self.drained or self.error)


def fail_future(future: Optional[asyncio.Future[None]], error: BaseException) -> None:
    """Fail a future that is still pending."""
    if future is not None and not future.done():
        future.set_exception(error)
