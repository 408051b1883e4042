# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A client outside both hosts: one connection that it never makes again, and the highest number that was acknowledged over it."""

from __future__ import annotations

import socket
import threading
import time

PORT = 7000


class Client:
    def __init__(self, address: str, patience: float = 900) -> None:
        self.acknowledged = 0
        self.answered = time.monotonic()
        self.broken = ""
        self.over = threading.Event()
        self.socket = socket.create_connection((address, PORT), timeout=30)
        self.socket.settimeout(patience)
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        try:
            with self.socket.makefile("rwb", buffering=0) as lines:
                while not self.over.is_set():
                    lines.write(b"?\n")
                    answer = lines.readline()
                    if not answer.endswith(b"\n"):
                        raise ConnectionError("the workload closed it")
                    number = int(answer)
                    if number <= self.acknowledged:
                        raise ValueError(f"{number} was acknowledged after {self.acknowledged}")
                    self.acknowledged, self.answered = number, time.monotonic()
                    time.sleep(0.05)
        except (OSError, ValueError) as error:
            if not self.over.is_set():
                self.broken = str(error)

    def answers(self) -> bool:
        """Whether there has been an answer in the last second. A connection that is broken never has one again."""
        return not self.broken and time.monotonic() - self.answered < 1

    def end(self) -> None:
        self.over.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is broken
        self.socket.close()
        self.thread.join(10)
