# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

# By vzmigrate(8) of vzctl 4.
STATUSES = {
    0: "vzmigrate says that it was, and the other host does not run it",
    2: "it does not run: start it, or stop the others, too",
    4: "the other host cannot be reached by ssh as root without a password",
    6: "its files could not be copied",
    7: "it could not be started there",
    8: "it could not be stopped or suspended here",
    9: "the other host has one of that id",
    10: "it is not here any more",
    12: "one of its addresses is in use there",
    13: "its quota could not be moved",
    14: "OpenVZ does not run there: start the service vz",
    16: "the other host has no ploop",
    17: "the other kernel's checkpoints are of another version",
    18: "the other processor lacks features that it uses",
    20: "somebody works on it: wait until vzctl is done",
}


def vzmigrate_status(status: int) -> str:
    """An exit status of vzmigrate's in words."""
    return STATUSES.get(int(status), "vzmigrate ended with status {0}".format(status))


class FilterModule:
    """vzmigrate's exit statuses."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"vzmigrate_status": vzmigrate_status}
