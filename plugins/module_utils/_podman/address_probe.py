# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether an address is in use on a segment, asked as a host asks before it takes one (RFC 5227, RFC 4862): without an address of its own."""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
import typing as t

from .._core.runtime import HandoverError

ARP, IPV6 = 0x0806, 0x86DD
SECONDS = 1.0
TIMES = 3

Address = t.Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

_ICMPV6, _SOLICITATION, _ADVERTISEMENT = 58, 135, 136


def in_use(interface: str, address: Address) -> bool:
    """Whether a machine on the interface's segment answers for it."""
    kind = ARP if address.version == 4 else IPV6
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind)) as wire:
            wire.bind((interface, kind))
            frame = question(wire.getsockname()[4], address)
            for _time in range(TIMES):
                wire.send(frame)
                if _answered(wire, address, time.monotonic() + SECONDS / TIMES):
                    return True
    except OSError as exc:
        raise HandoverError("{0}: it cannot be asked whether {1} is in use there: {2}".format(interface, address, exc.strerror or exc)) from exc
    return False


def _answered(wire: socket.socket, address: Address, until: float) -> bool:
    while time.monotonic() < until:
        wire.settimeout(max(0.001, until - time.monotonic()))
        try:
            if is_answer(wire.recv(2048), address):
                return True
        except socket.timeout:
            return False
    return False


def question(own: bytes, address: Address) -> bytes:
    """The frame that asks for it."""
    if isinstance(address, ipaddress.IPv4Address):
        return b"\xff" * 6 + own + struct.pack("!HHHBBH", ARP, 1, 0x0800, 6, 4, 1) + own + bytes(4) + bytes(6) + address.packed
    group = ipaddress.ip_address("ff02::1:ff00:0").packed[:13] + address.packed[13:]
    body = struct.pack("!BBHI", _SOLICITATION, 0, 0, 0) + address.packed
    total = _sum(bytes(16) + group + struct.pack("!II", len(body), _ICMPV6) + body)
    body = body[:2] + struct.pack("!H", total) + body[4:]
    return b"\x33\x33" + group[12:] + own + struct.pack("!HIHBB", IPV6, 6 << 28, len(body), _ICMPV6, 255) + bytes(16) + group + body


def _sum(data: bytes) -> int:
    total = sum(struct.unpack("!{0}H".format(len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def is_answer(frame: bytes, address: Address) -> bool:
    """Whether a frame says that a machine has the address, or is about to take it."""
    if isinstance(address, ipaddress.IPv4Address):
        return len(frame) >= 42 and frame[12:14] == struct.pack("!H", ARP) and frame[28:32] == address.packed
    advertised = frame[12:14] == struct.pack("!H", IPV6) and frame[20:21] == bytes([_ICMPV6]) and frame[54:55] == bytes([_ADVERTISEMENT])
    return advertised and frame[62:78] == address.packed
