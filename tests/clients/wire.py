# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Listens on an interface for TCP resets from a hardware address: whoever of the hosts sends them, a client would see its connection end."""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import threading
import time
import typing as t

ETH_P_ALL = 3
ETH_IPV4, ETH_IPV6 = 0x0800, 0x86DD
TCP = 6
RST = 0x04
SO_ATTACH_FILTER = 26

# What the kernel lets through, as a program of classic BPF: TCP over IPv4 or IPv6 with RST set.
LOAD_HALF, LOAD_BYTE, LOAD_BYTE_AFTER, TAKE_HEADER_LENGTH = 0x28, 0x30, 0x50, 0xB1
IF_EQUAL, IF_SET, RETURN = 0x15, 0x45, 0x06
# Label, operation, value, and for a condition where to go if it holds and if not; no label is the next line.
PROGRAM = (
    ("", LOAD_HALF, 12, "", ""),
    ("", IF_EQUAL, ETH_IPV4, "", "ipv6"),
    ("", LOAD_BYTE, 14 + 9, "", ""),
    ("", IF_EQUAL, TCP, "", "drop"),
    ("", TAKE_HEADER_LENGTH, 14, "", ""),
    ("", LOAD_BYTE_AFTER, 14 + 13, "", ""),
    ("", IF_SET, RST, "take", "drop"),
    ("ipv6", IF_EQUAL, ETH_IPV6, "", "drop"),
    ("", LOAD_BYTE, 14 + 6, "", ""),
    ("", IF_EQUAL, TCP, "", "drop"),
    ("", LOAD_BYTE, 14 + 40 + 13, "", ""),
    ("", IF_SET, RST, "take", "drop"),
    ("take", RETURN, 0xFFFF, "", ""),
    ("drop", RETURN, 0, "", ""),
)


def assemble(program: t.Sequence[tuple[str, int, int, str, str]]) -> bytes:
    """The program as the kernel reads it: jumps are counted from the next line."""
    places = {label: place for place, (label, *_rest) in enumerate(program) if label}

    def jump(label: str, place: int) -> int:
        return places[label] - place - 1 if label else 0

    return b"".join(
        struct.pack("HBBI", operation, jump(then, place), jump(otherwise, place), value)
        for place, (_label, operation, value, then, otherwise) in enumerate(program)
    )


def sender(frame: bytes) -> str:
    """The hardware address that a frame comes from."""
    return ":".join(f"{byte:02x}" for byte in frame[6:12])


def describe(frame: bytes) -> str:
    """A reset in words: from where to where."""
    if struct.unpack_from("!H", frame, 12)[0] == ETH_IPV4:
        start = 14 + 4 * (frame[14] & 15)
        addresses = [socket.inet_ntop(socket.AF_INET, frame[at : at + 4]) for at in (26, 30)]
    else:
        start = 14 + 40
        addresses = [socket.inet_ntop(socket.AF_INET6, frame[at : at + 16]) for at in (22, 38)]
    ports = struct.unpack_from("!HH", frame, start)
    return " to ".join(f"{address} port {port}" for address, port in zip(addresses, ports))


class Resets:
    """Counts, in a thread of its own, from start to stop."""

    def __init__(self, interface: str, hardware_address: str) -> None:
        self.interface = interface
        self.hardware_address = hardware_address.lower()
        self.found: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def start(self) -> None:
        # Bound only when the filter is in place: before that everything would come.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        program = ctypes.create_string_buffer(assemble(PROGRAM))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(PROGRAM), ctypes.addressof(program)))
        self._socket.bind((self.interface, ETH_P_ALL))
        self._thread.start()

    def stop(self) -> dict[str, t.Any]:
        self._ended.set()
        self._thread.join()
        self._socket.close()
        return {"from": self.hardware_address, "resets": len(self.found), "first": self.found[:5]}

    def _listen(self) -> None:
        while not self._ended.is_set():
            if select.select([self._socket], [], [], 0.2)[0]:
                frame = self._socket.recv(256)
                if sender(frame) == self.hardware_address:
                    self.found.append(f"{time.strftime('%H:%M:%S')} {describe(frame)}")
