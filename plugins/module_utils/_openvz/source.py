# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The OpenVZ host as the destination sees it in an import: by ssh, with a key that is made for this import and removed after it.

vzctl's exit status is not believed alone: its status is asked after each verb.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import typing as t

from .._core.runtime import Completed, HandoverError, Runtime
from .look import state_of

# Servers of CentOS 6 have no newer kind of signature than ssh-rsa.
CONFIG = """\
Host source
  HostName {address}
  Port {port}
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  BatchMode yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  HostKeyAlias source
  HostKeyAlgorithms +ssh-rsa
  IgnoreUnknown PubkeyAcceptedAlgorithms
  PubkeyAcceptedAlgorithms +ssh-rsa
  ConnectTimeout 20
  ServerAliveInterval 15
  ServerAliveCountMax 4
  ControlMaster auto
  ControlPath {control}
  ControlPersist 300
"""
# What rsync ends with where a file went away while it was copied.
VANISHED = 24
TREE = ("--archive", "--hard-links", "--acls", "--xattrs", "--numeric-ids", "--sparse", "--delete", "--exclude=/lost+found")
# Of an image in use only what changed is written, into the file that is there.
IMAGES = ("--archive", "--numeric-ids", "--inplace", "--delete")
# The kernel's ploop writes into an image past its file system, so that the file's time tells nothing: the last pass compares all.
LAST_IMAGES = (*IMAGES, "--ignore-times")


class Source:
    """One container on its OpenVZ host."""

    def __init__(self, runtime: Runtime, folder: str, ctid: str) -> None:
        self.runtime = runtime
        self.folder = folder
        self.ctid = ctid
        # A socket's path has 107 characters at most, of which ssh needs 17.
        self.control = "/run/handover-import-" + hashlib.sha256(folder.encode()).hexdigest()[:16]

    def make_key(self, name: str, address: str, port: int, host_keys: str) -> str:
        """The line for the source's authorized_keys."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        key = os.path.join(self.folder, "key")
        if not os.path.exists(key):
            # Older servers know no other kind.
            how = ["-q", "-t", "rsa", "-b", "3072", "-N", "", "-C", f"handover-import-{name}", "-f", key]
            self.runtime.run([self.runtime.tool("ssh-keygen", "openssh-client"), *how])
        known = "".join(f"source {' '.join(line.split()[:2])}\n" for line in host_keys.splitlines() if len(line.split()) >= 2)
        for file, text in (("known_hosts", known), ("ssh_config", CONFIG.format(address=address, port=port, folder=self.folder, control=self.control))):
            with open(os.path.join(self.folder, file), "w", encoding="utf-8") as target:
                target.write(text)
        with open(key + ".pub", encoding="utf-8") as source:
            return "no-port-forwarding,no-agent-forwarding,no-X11-forwarding,no-pty " + source.read().strip()

    def forget_key(self) -> None:
        """The connection ends, and the key goes."""
        if os.path.exists(self.control) and os.path.exists(os.path.join(self.folder, "ssh_config")):
            self.runtime.run([*self._ssh(), "-O", "exit", "source"], accept=range(256))
        for file in ("key", "key.pub", "known_hosts", "ssh_config"):
            if os.path.lexists(os.path.join(self.folder, file)):
                os.unlink(os.path.join(self.folder, file))

    def _ssh(self) -> list[str]:
        return [self.runtime.tool("ssh", "openssh-client"), "-F", os.path.join(self.folder, "ssh_config")]

    def run(self, *argv: str, accept: t.Container[int] = (0,)) -> Completed:
        """A command on the source, of which the sentence of a failure says so."""
        done = self.runtime.run([*self._ssh(), "source", shlex.join(argv)], accept=range(256))
        if done.rc == 255:
            raise HandoverError(f"the source does not answer over ssh: {done.last_words}: see that the destination reaches its port for ssh")
        if done.rc not in accept:
            raise HandoverError(f"on the source, {shlex.join(argv)} failed ({done.rc}): {done.last_words}")
        return done

    def state(self) -> dict[str, bool]:
        return state_of(self.run("vzctl", "status", self.ctid).stdout)

    def lock(self) -> None:
        """Nobody starts it from here on until `unlock`: a cron job or a cluster may start what is stopped alone. One that runs goes on."""
        self.run("vzctl", "set", self.ctid, "--disabled", "yes", "--onboot", "no", "--save")
        if not self.locked():
            raise HandoverError(f"vzctl set --disabled yes has ended, and {self.ctid} may still be started: see its configuration on the source")

    def stop(self, running: bool) -> None:
        """Stopped and unmounted, once it is locked. One that is known to run is not asked about before: it waits for nothing but its end."""
        if running or self.state()["running"]:
            # 31 is vzctl's for a container that does not run.
            self.run("vzctl", "stop", self.ctid, accept=(0, 31))
        state = self.state()
        if state["running"]:
            raise HandoverError(f"vzctl stop has ended, and {self.ctid} still runs: see its log on the source (/var/log/vzctl.log)")
        if state["mounted"]:
            self.run("vzctl", "umount", self.ctid)
            state = self.state()
        if state["running"] or state["mounted"]:
            raise HandoverError(f"{self.ctid} is still {'running' if state['running'] else 'mounted'} on the source: end what uses it there")

    def locked(self) -> bool:
        return self.run("grep", "-Eq", '^[[:space:]]*DISABLED="?yes"?', f"/etc/vz/conf/{self.ctid}.conf", accept=(0, 1)).rc == 0

    def unlock(self, onboot: bool | str, start: bool, disabled: bool) -> None:
        """As it was before the import. Nothing else may run the container."""
        boot = onboot if isinstance(onboot, str) else "yes" if onboot else "no"
        self.run("vzctl", "set", self.ctid, *(() if disabled and not start else ("--disabled", "no")), "--onboot", boot, "--save")
        if start and not self.state()["running"]:
            self.run("vzctl", "start", self.ctid, accept=(0, 32))
            if not self.state()["running"]:
                raise HandoverError(f"vzctl start has ended, and {self.ctid} does not run on the source: see its log there (/var/log/vzctl.log)")
        if disabled and start:
            self.run("vzctl", "set", self.ctid, "--disabled", "yes", "--save")

    def copy(self, path: str, place: str, how: t.Sequence[str], last: bool) -> None:
        """The contents of a folder of the source. Only before the last pass may files go away meanwhile."""
        os.makedirs(place, mode=0o700, exist_ok=True)
        rsync = self.runtime.tool("rsync", "rsync")
        # --rsh is split at blanks: the folder's name has none.
        argv = [rsync, *how, "--rsh", " ".join(self._ssh()), f"source:{path.rstrip('/')}/", place.rstrip("/") + "/"]
        done = self.runtime.run(argv, accept=range(256))
        if done.rc and not (done.rc == VANISHED and not last):
            raise HandoverError(f"{path} could not be copied from the source ({done.rc}): {done.last_words}")
