# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the numbered events of a web server over one connection, and never makes another."""

from __future__ import annotations

import http.client
import threading
import time

# A server that is silent for so long has lost its client.
SILENCE_SECONDS = 60


class Events:
    """One answer without an end, `data: 1`, `data: 2` and so on: an event that is missing, comes twice or is not whole is a failure."""

    def __init__(self, address: str, path: str, port: int = 80) -> None:
        self.count = 0
        self.failed = ""
        self.longest = 0.0
        self.stopped = threading.Event()
        self.connection = http.client.HTTPConnection(address, port, timeout=SILENCE_SECONDS)
        self.connection.request("GET", path)
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            raise ConnectionError(f"{address}{path} answers {self.answer.status}")
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            last = time.monotonic()
            while not self.stopped.is_set():
                line = self.answer.readline()
                self.read(line)
                now = time.monotonic()
                self.longest, last = max(self.longest, now - last), now
        except (OSError, ValueError, http.client.HTTPException) as exc:
            self.failed = str(exc) or type(exc).__name__
        finally:
            self.connection.close()

    def read(self, line: bytes) -> None:
        """One line of the answer: an event, or the empty line behind it."""
        if not line:
            raise ConnectionError(f"the server closed it after {self.count} events")
        if line == b"\n":
            return
        if line != b"data: %d\n" % (self.count + 1):
            raise ConnectionError(f"{line!r} came after event {self.count}")
        self.count += 1

    def goes_on(self, seconds: float = 10) -> bool:
        """Whether another event comes."""
        before, end = self.count, time.monotonic() + seconds
        while self.count == before and not self.failed and time.monotonic() < end:
            time.sleep(0.02)
        return self.count > before and not self.failed

    def end(self) -> None:
        self.stopped.set()
        self.thread.join(SILENCE_SECONDS + 5)
