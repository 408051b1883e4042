# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.modules import kvm_cache_info

DEFINITION = """
<domain type='qemu'><name>web1</name><memory unit='MiB'>256</memory>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe'/><source file='{image}'/><target dev='vda' bus='virtio'/></disk>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  </devices>
</domain>
"""


class Virsh:
    """A host with one guest, whose agent may be silent."""

    def __init__(self, image, mounts=None):
        self.image, self.mounts = image, mounts

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        assert argv[1:4] == ["--connect", "qemu:///system", "--quiet"]
        answer = getattr(self, argv[4].replace("-", "_"))(*argv[5:])
        rc, text = (1, "") if answer is None else (0, answer)
        assert rc in accept
        return runtime.Completed(tuple(argv), rc, text, "")

    def version(self):
        return "Using library: libvirt 11.3.0\nRunning hypervisor: QEMU 10.0.13\n"

    def list(self, *_words):
        return "web1\n\n"

    def dumpxml(self, *_words):
        return DEFINITION.format(image=self.image)

    def domstate(self, *_words):
        return "running\n"

    def qemu_agent_command(self, _domain, _name, _timeout, _seconds, asked):
        if self.mounts is None:
            return None
        answers = {"guest-file-open": 7, "guest-file-read": {"buf-b64": base64.b64encode(self.mounts.encode()).decode()}, "guest-file-close": {}}
        return json.dumps({"return": answers[json.loads(asked)["execute"]]})


@pytest.fixture(name="host")
def a_host(monkeypatch, tmp_path):
    def make(mounts=None):
        image = tmp_path / "web1.raw"
        image.touch()
        virsh = Virsh(image, mounts)
        monkeypatch.setattr(runtime.Runtime, "tool", lambda self, tool, package: f"/usr/bin/{tool}")
        monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, **rest: virsh.run(argv, **rest))
        return virsh

    return make


def test_a_guest_and_its_disk(host, run_module):
    host("proc /proc proc rw 0 0\n/dev/vda / ext4 rw,relatime 0 0\n")
    result = run_module(kvm_cache_info.main, {})
    (guest,) = result["guests"]
    assert guest["flushes"]["verdict"] == "yes"
    (disk,) = guest["disks"]
    assert disk["power_loss"]["verdict"] == "no" and "ignores the guest's flushes" in disk["power_loss"]["reason"]
    assert disk["live_migration"]["verdict"] == "no" and "this host alone" in disk["live_migration"]["reason"]
    assert result["host"]["qemu"] == "10.0.13"
    assert result["host"]["promised"] == 256 << 20


def test_an_agent_that_is_silent_makes_nothing_up(host, run_module):
    host()
    (guest,) = run_module(kvm_cache_info.main, {})["guests"]
    assert guest["flushes"]["verdict"] == "unknown"


def test_an_unknown_guest_is_named(host, run_module):
    host()
    with pytest.raises(Exception, match="this host has no guest shop: .* \\(web1\\)"):
        run_module(kvm_cache_info.main, {"guests": ["shop"]})
