# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt on this host, asked through virsh."""

from __future__ import annotations

import base64
import json
import re
import typing as t

from .._core.runtime import HandoverError, Runtime
from .domain_xml import Guest, parse

# How long a guest's agent has to answer, in seconds: one that is hung must not hold up the audit of a fleet.
AGENT_SECONDS = 5
# More than any list of mounts has.
MOUNTS_BYTES = 256 * 1024


class Libvirt:
    """The guests of one connection."""

    def __init__(self, runtime: Runtime, uri: str) -> None:
        self.runtime = runtime
        self._virsh = [runtime.tool("virsh", "libvirt-clients"), "--connect", uri, "--quiet"]

    @property
    def command(self) -> list[str]:
        """How virsh is called."""
        return list(self._virsh)

    def virsh(self, *words: str, accept: t.Container[int] = (0,), timeout: float | None = None) -> str:
        return self.runtime.run([*self._virsh, *words], accept=accept, timeout=timeout).stdout

    def names(self) -> list[str]:
        """All guests, running or not."""
        return [line.strip() for line in self.virsh("list", "--all", "--name").splitlines() if line.strip()]

    def guest(self, name: str) -> Guest:
        """The guest as it runs, or as it is defined where it does not."""
        return parse(self.virsh("dumpxml", "--domain", name))

    def defined(self, name: str) -> Guest:
        """The guest as it will be after its next start."""
        return parse(self.virsh("dumpxml", "--inactive", "--domain", name))

    def definition(self, name: str) -> str:
        """All of its definition, secrets too, as libvirt takes it back."""
        return self.virsh("dumpxml", "--inactive", "--security-info", "--domain", name)

    def define(self, text: str) -> None:
        """Has libvirt take a definition, after it was held against libvirt's schema."""
        self.runtime.run([*self._virsh, "define", "--validate", "--file", "/dev/stdin"], stdin=text)

    def state(self, name: str) -> str:
        """As virsh calls it: running, paused, shut off, …"""
        return self.virsh("domstate", "--domain", name).strip()

    def qemu_version(self) -> tuple[int, int, int]:
        """Of the QEMU that new guests get."""
        said = self.virsh("version")
        found = re.search(r"hypervisor: QEMU (\d+)\.(\d+)\.(\d+)", said)
        if found is None:
            raise HandoverError("`virsh version` names no QEMU: kvm_cache_info audits QEMU's guests alone; is `uri` the right one?")
        return t.cast("tuple[int, int, int]", tuple(int(part) for part in found.groups()))

    def mounts_inside(self, name: str) -> list[tuple[str, str]] | None:
        """Type and options of a Linux guest's mounts, read by its agent; None where no agent answers, or none that may read files."""
        opened = self.agent(name, "guest-file-open", path="/proc/self/mounts", mode="r")
        if opened is None:
            return None
        try:
            read = self.agent(name, "guest-file-read", handle=opened, count=MOUNTS_BYTES)
        finally:
            self.agent(name, "guest-file-close", handle=opened)
        if read is None:
            return None
        lines = base64.b64decode(read["buf-b64"]).decode("utf-8", "replace").splitlines()
        return [(fields[2], fields[3]) for fields in map(str.split, lines) if len(fields) >= 4]

    def execute(self, name: str, script: str) -> int:
        """Starts a script in a guest, and returns the number by which its agent knows it."""
        started = self.agent(name, "guest-exec", path="/bin/sh", arg=["-c", script])
        if started is None:
            raise HandoverError(f"the agent of {name} started nothing: it needs QEMU's guest agent, and that has to allow guest-exec")
        return int(started["pid"])

    def has_ended(self, name: str, number: int) -> bool:
        """Whether the started call has finished; a failed one is an error."""
        status = self.agent(name, "guest-exec-status", pid=number)
        if status is None or not status["exited"]:
            return False
        if status.get("exitcode") != 0:
            raise HandoverError(f"what {name} was given to do ended with status {status.get('exitcode', 'of a signal')}: try it by hand in the guest")
        return True

    def agent(self, name: str, command: str, seconds: int = AGENT_SECONDS, **arguments: t.Any) -> t.Any:
        """The agent's answer, or None where it gives none."""
        asked = json.dumps({"execute": command, **({"arguments": arguments} if arguments else {})})
        done = self.runtime.run(
            [*self._virsh, "qemu-agent-command", "--domain", name, "--timeout", str(seconds), asked], accept=(0, 1)
        )
        if done.rc:
            return None
        try:
            return json.loads(done.stdout)["return"]
        except (ValueError, KeyError):
            return None
