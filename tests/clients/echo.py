#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Talks to a server that sends everything back, over one TCP connection to each address, and never makes another.

    echo.py PORT ADDRESS…    until SIGTERM; then prints, for each address, how many answers came, the longest wait in seconds and when it began
                             (seconds since the epoch), what broke, and what the kernel knew of the connection then

Standard library only: it runs on the lab's hosts.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import threading
import time

# TCP itself gives up much later; nobody who waits so long for an answer still counts as connected.
SILENCE_SECONDS = 60


# struct tcp_info of linux/tcp.h: its first bytes, and of the 32-bit numbers after them those that tell why nothing comes.
TCP_INFO_BYTES = ("state", "ca_state", "retransmits", "probes", "backoff")
TCP_INFO_NUMBERS = {"rto_us": 0, "unacked": 4, "last_data_sent_ms": 9, "last_data_recv_ms": 11, "last_ack_recv_ms": 12}


def kernels_view(connection: socket.socket) -> dict[str, object]:
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    numbers = struct.unpack_from("=24I", told, 8)
    view: dict[str, object] = {"from": connection.getsockname()[0], **dict(zip(TCP_INFO_BYTES, told))}
    return {**view, **{name: numbers[index] for name, index in TCP_INFO_NUMBERS.items()}}


def converse(connection: socket.socket, stopped: threading.Event, seen: dict[str, object]) -> None:
    number, worst, since = 0, 0.0, 0.0
    try:
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
            number += 1
            if (waited := time.monotonic() - began) > worst:
                worst, since = waited, time.time() - waited
            time.sleep(0.005)
    except OSError:
        seen["kernel"] = kernels_view(connection)
        raise
    finally:
        seen.update(answers=number, longest_wait=round(worst, 3), longest_wait_began=round(since, 3), ended=round(time.time(), 3))


def talk(address: str, port: int, stopped: threading.Event, seen: dict[str, object]) -> None:
    try:
        with socket.create_connection((address, port), timeout=SILENCE_SECONDS) as connection:
            converse(connection, stopped, seen)
    except OSError as error:
        seen["error"] = str(error)


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
