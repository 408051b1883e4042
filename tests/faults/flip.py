# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a host of the lab: what is redirected here goes on to where it was meant for, and one bit of it is flipped when /run/handover-faults/now is there."""

import os
import socket
import struct
import threading

NOW = "/run/handover-faults/now"
SO_ORIGINAL_DST = 80
MARK = 77


def carry(here, there, may_flip):
    while True:
        try:
            data = bytearray(here.recv(65536))
            if data and may_flip and os.path.exists(NOW):
                os.remove(NOW)
                data[len(data) // 2] ^= 1
            if not data:
                break
            there.sendall(data)
        except OSError:
            break
    for end in (here, there):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(connection):
    raw = connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
    port, address = struct.unpack("!2xH4s8x", raw)
    onward = socket.socket()
    onward.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    onward.connect((socket.inet_ntoa(address), port))
    threading.Thread(target=carry, args=(connection, onward, True), daemon=True).start()
    carry(onward, connection, False)


def main():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", 7))
    listener.listen(16)
    while True:
        connection, _address = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


main()
