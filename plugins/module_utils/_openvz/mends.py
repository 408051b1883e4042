# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an imported root file system needs to come up on a stock kernel: options of podman's, and lines of its own files that change.

Each mend has its reason. A file that changes keeps its former self beside it, with .orig behind its name.
"""

from __future__ import annotations

import re
import typing as t

from .._core import inits
from .._core.inits import init_of

Root = t.Mapping[str, t.Any]
# The names of the interfaces that podman sets up.
Interfaces = t.Sequence[str]
Change = t.Callable[[str, Interfaces], str]


# A user has services that run without a login.
LINGER = "linger"


class Mend(t.NamedTuple):
    """`files` are patterns below the root, and how their text changes; a text that stays the same is left alone. `masks` are units."""

    name: str
    reason: str
    when: t.Callable[[Root], bool]
    options: t.Callable[[str], t.Sequence[str]] = lambda _mountpoint: ()
    files: t.Sequence[tuple[str, Change]] = ()
    masks: t.Sequence[str] = ()


def comment(pattern: str) -> Change:
    """A hash before each line that matches from its beginning."""
    change = inits.comment(pattern)
    return lambda text, _interfaces: change(text)


def stanzas(text: str, interfaces: Interfaces) -> str:
    """/etc/network/interfaces without what it says of interfaces that are set up already, and of their aliases."""
    kept, ours = [], False
    for line in text.splitlines(keepends=True):
        words = line.split()
        if words and words[0] in ("auto", "iface", "mapping", "source", "source-directory") or words and words[0].startswith("allow-"):
            named = words[1:2] if words[0] in ("iface", "mapping") else words[1:]
            ours = bool(named) and all(word.partition(":")[0] in interfaces for word in named)
            if not ours and words[0] == "auto" or words[0].startswith("allow-"):
                line = " ".join([words[0], *(word for word in named if word.partition(":")[0] not in interfaces)]) + "\n" if not ours else line
        kept.append("# " + line if ours and words and not words[0].startswith("#") else line)
    return "".join(kept)


def not_at_boot(text: str, interfaces: Interfaces) -> str:
    """An ifcfg file of an interface that is set up already."""
    device = re.search(r"^\s*DEVICE=[\"']?([\w.:-]+)", text, re.MULTILINE)
    if not device or device.group(1).partition(":")[0] not in interfaces:
        return text
    changed, count = re.subn(r"^(\s*ONBOOT=).*$", r"\1no", text, flags=re.MULTILINE)
    return changed if count else text.rstrip("\n") + "\nONBOOT=no\n"


def loginuid(text: str, _interfaces: Interfaces) -> str:
    return re.sub(r"^(\s*session\s+)required(\s+pam_loginuid\.so)", r"\1optional\2", text, flags=re.MULTILINE)


def _is(*kinds: str) -> t.Callable[[Root], bool]:
    return lambda root: init_of(root) in kinds


def _has(path: str) -> t.Callable[[Root], bool]:
    return lambda root: path in root["has"]


_OLD = _is("sysvinit", "upstart")
MENDS = (
    Mend("systemd", "systemd finds its control group and its tmpfs", _is("systemd"), options=lambda _mountpoint: ["--systemd=always"]),
    Mend(
        "users", "the container moves live only without the manager of a user, which CRIU does not restore: logins work without it",
        lambda root: _is("systemd")(root) and LINGER not in root["has"], masks=["etc/systemd/system/user@.service"],
    ),
    # Of a link podman would mount the place on the host that it names.
    Mend(
        "tmp", "/tmp stays on the volume, as it was: podman would mount a tmpfs there for systemd", lambda root: _is("systemd")(root) and "tmp" in root["has"],
        options=lambda mountpoint: [f"--volume={mountpoint}/tmp:/tmp"],
    ),
    Mend(
        "no systemd", "nothing is prepared for systemd: this init needs no control group, of either version, and must not see one that it could mount over",
        _OLD, options=lambda _mountpoint: ["--systemd=false"],
    ),
    Mend(
        "run", "/run is empty at each start: this init cannot mount a tmpfs there itself, and marks of the last start would keep services down",
        lambda root: _OLD(root) and "run" in root["has"],
        options=lambda _mountpoint: [f"--tmpfs={place}:{options}" for place, options in inits.RUN.items()],
    ),
    Mend(
        "power", "podman stops the container by the signal of a failing power, at which init shuts down: SIGTERM means nothing to it",
        _is("sysvinit"), options=lambda _mountpoint: ["--stop-signal=SIGPWR"], files=[("etc/inittab", lambda text, _interfaces: inits.power(text))],
    ),
    Mend(
        "getty", "there are no virtual terminals: a getty would end at once and be started for ever",
        _is("sysvinit"), files=[("etc/inittab", lambda text, _interfaces: inits.without_getty(text))],
    ),
    Mend(
        "getty", "there are no virtual terminals: a getty would end at once and be started for ever",
        _is("upstart"), files=[("etc/init/start-ttys.conf", comment(r"start on ")), ("etc/init/serial.conf", comment(r"start on "))],
    ),
    Mend(
        "udev", "podman makes the container's devices: udev would wait for a kernel's events that never come",
        lambda root: _OLD(root) and "etc/rc.d/rc.sysinit" in root["has"], files=[("etc/rc.d/rc.sysinit", comment(r"\s*/sbin/start_udev\b"))],
    ),
    Mend(
        "network", "podman sets up the container's interfaces: the files of OpenVZ would take its routes away",
        _has("etc/network/interfaces"), files=[("etc/network/interfaces", stanzas)],
    ),
    Mend(
        "network", "podman sets up the container's interfaces: the files of OpenVZ would take its routes away",
        _has("etc/sysconfig/network-scripts"), files=[("etc/sysconfig/network-scripts/ifcfg-*", not_at_boot)],
    ),
    Mend(
        "fstab", "the devices of OpenVZ's file systems are not there, and the root is mounted already",
        _has("etc/fstab"), files=[("etc/fstab", comment(r"\s*(/dev/(simfs|ploop\w*|root)\s|\S+\s+/\s|devpts\s|\S+\s+/dev/pts\s|\S+\s+/(proc|sys)\s)"))],
    ),
    Mend(
        "loginuid", "the login's user in the audit is the host's matter: a session must not end because it cannot be set",
        lambda _root: True, files=[(f"etc/pam.d/{name}", loginuid) for name in ("sshd", "login", "remote", "cron", "crond", "su-l", "sudo")],
    ),
)  # fmt: skip


def needed(root: Root) -> list[Mend]:
    """The mends of this root file system."""
    return [mend for mend in MENDS if mend.when(root)]


def options(root: Root, mountpoint: str) -> list[str]:
    """podman's options among them."""
    return [each for mend in needed(root) for each in mend.options(mountpoint)]
