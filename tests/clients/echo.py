#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talks to a server that sends everything back, over one TCP connection to each address, and never makes another.

    echo.py PORT ADDRESS…    until SIGTERM; then prints, for each address, how many answers came, the longest wait, and what broke

Standard library only: it runs on the lab's hosts.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time

# TCP itself gives up much later; nobody who waits so long for an answer still counts as connected.
SILENCE_SECONDS = 60


def talk(address: str, port: int, stopped: threading.Event, seen: dict[str, object]) -> None:
    number, worst = 0, 0.0
    try:
        with socket.create_connection((address, port), timeout=SILENCE_SECONDS) as connection:
            while not stopped.is_set():
                asked, began = b"%015d\n" % number, time.monotonic()
                connection.sendall(asked)
                answer = b""
                while len(answer) < len(asked):
                    part = connection.recv(len(asked) - len(answer))
                    if not part:
                        raise ConnectionError("the server closed it")
                    answer += part
                if answer != asked:
                    raise ConnectionError(f"{asked!r} came back as {answer!r}")
                number, worst = number + 1, max(worst, time.monotonic() - began)
                time.sleep(0.005)
    except OSError as error:
        seen["error"] = str(error)
    seen.update(answers=number, longest_wait=round(worst, 3))


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    seen: dict[str, dict[str, object]] = {address: {} for address in sys.argv[2:]}
    threads = [threading.Thread(target=talk, args=(address, int(sys.argv[1]), stopped, found)) for address, found in seen.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
