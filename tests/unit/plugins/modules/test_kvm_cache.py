# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.modules import kvm_cache

DEFINITION = """
<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>web1</name><memory unit='MiB'>256</memory>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/><source file='/srv/a.raw'/><target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='disk'><source file='/srv/b.raw'/><target dev='vdb' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><source file='/srv/c.iso'/><target dev='sda' bus='sata'/><readonly/></disk>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <graphics type='vnc' passwd='secret'/>
  </devices>
  <qemu:commandline><qemu:arg value='-s'/></qemu:commandline>
</domain>
"""


class Virsh:
    """A guest as it runs and as it is defined, and what its agent says of its mounts."""

    def __init__(self, mounts, state="running"):
        self.mounts, self.state = mounts, state
        self.live = self.inactive = DEFINITION

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = argv[4:]
        answers = {
            "list": lambda: "web1\n",
            "domstate": lambda: self.state,
            "dumpxml": lambda: self.inactive if "--inactive" in words else self.live,
            "define": lambda: self._define(words, stdin),
            "qemu-agent-command": lambda: self._agent(json.loads(words[-1])["execute"]),
        }
        text = answers[words[0]]()
        rc = 1 if text is None else 0
        assert rc in accept
        return runtime.Completed(tuple(argv), rc, text or "", "")

    def _define(self, words, stdin):
        assert "--validate" in words
        self.inactive = stdin
        return ""

    def _agent(self, command):
        if self.mounts is None:
            return None
        answers = {"guest-file-open": 7, "guest-file-read": {"buf-b64": base64.b64encode(self.mounts.encode()).decode()}, "guest-file-close": {}}
        return json.dumps({"return": answers[command]})


@pytest.fixture(name="host")
def a_host(monkeypatch):
    def make(mounts="/dev/vda / ext4 rw,relatime 0 0\n", **change):
        virsh = Virsh(mounts, **change)
        monkeypatch.setattr(runtime.Runtime, "tool", lambda self, tool, package: f"/usr/bin/{tool}")
        monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, **rest: virsh.run(argv, **rest))
        return virsh

    return make


def test_a_guest_that_flushes_may_have_writeback(host, run_module):
    virsh = host()
    result = run_module(kvm_cache.main, {"guest": "web1", "mode": "writeback"}, diff=True)
    # vdb has no mode of its own, and so QEMU's, which is writeback.
    assert result["disks"] == [{"target": "vda", "before": "none", "after": "writeback", "io": "threads"}]
    assert result["pending"] == ["vda"]
    assert result["diff"] == {"before": "web1 vda: cache=none io=native\n", "after": "web1 vda: cache=writeback io=threads\n"}
    for kept in ("passwd=\"secret\"", "<qemu:arg value=\"-s\"", "cache=\"writeback\" io=\"threads\""):
        assert kept in virsh.inactive
    assert run_module(kvm_cache.main, {"guest": "web1", "mode": "writeback"})["changed"] is False


@pytest.mark.parametrize(
    ("mounts", "state", "why"),
    [
        ("/dev/vda / ext4 rw,nobarrier 0 0\n", "running", "a mounted ext4 has the option nobarrier"),
        (None, "running", "has no agent that answers"),
        ("/dev/vda / ext4 rw 0 0\n", "shut off", "does not run, and cannot be asked"),
    ],
)
def test_never_writeback_for_a_guest_that_may_not_flush_unless_told_so(host, run_module, mounts, state, why):
    virsh = host(mounts, state=state)
    asked = {"guest": "web1", "mode": "writeback", "disks": ["vda"]}
    with pytest.raises(Exception, match=f"vda of web1 is not changed from cache=none to writeback: .*{why}.*accept_data_loss"):
        run_module(kvm_cache.main, asked)
    assert virsh.inactive == DEFINITION
    assert run_module(kvm_cache.main, {**asked, "accept_data_loss": True})["changed"] is True


def test_no_guest_is_safe_with_unsafe(host, run_module):
    host()
    with pytest.raises(Exception, match="cache=unsafe ignores the guest's flushes"):
        run_module(kvm_cache.main, {"guest": "web1", "mode": "unsafe"})


def test_what_is_safer_needs_no_word_of_the_guest(host, run_module):
    virsh = host(None, state="shut off")
    result = run_module(kvm_cache.main, {"guest": "web1", "mode": "directsync"})
    assert [disk["target"] for disk in result["disks"]] == ["vda", "vdb"]
    assert result["pending"] == []
    assert virsh.inactive.count('cache="directsync"') == 2
    assert 'io="native"' in virsh.inactive


def test_check_mode_changes_nothing(host, run_module):
    virsh = host()
    assert run_module(kvm_cache.main, {"guest": "web1", "mode": "writeback"}, check=True)["changed"] is True
    assert virsh.inactive == DEFINITION


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"guest": "shop", "mode": "none"}, "this host has no guest shop: .*\\(web1\\)"),
        ({"guest": "web1", "mode": "none", "disks": ["sda"]}, "web1 has no disk sda that it writes to: it has vda, vdb"),
    ],
)
def test_what_is_not_there_is_named(host, run_module, asked, text):
    host()
    with pytest.raises(Exception, match=text):
        run_module(kvm_cache.main, asked)


def test_a_definition_that_did_not_take_is_no_success(host, run_module):
    virsh = host()
    virsh._define = lambda words, stdin: ""
    with pytest.raises(Exception, match="vda still has cache=none"):
        run_module(kvm_cache.main, {"guest": "web1", "mode": "writeback"})
