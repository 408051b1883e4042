# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a definition needs, held against two hosts. Each obstacle is planted in a guest that can move, and has to be named."""

from __future__ import annotations

import copy
import types
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import (
    check as guest_check,
    findings as guest_findings,
    host_look,
    needs as guest_needs,
    releases,
    rows as guest_rows,
    state,
)


class LibvirtError(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code

    def get_error_code(self):
        return self.code


LIBVIRT = types.SimpleNamespace(libvirtError=LibvirtError, VIR_ERR_NO_NETWORK=43, VIR_ERR_NO_NWFILTER=62, VIR_ERR_NO_SECRET=66)
NETWORKS = {"default": "<network><portgroup name='green'/></network>", "off": "<network/>"}
SECRETS = {"u1": b"x", "u2": None}


class There:
    """The destination's libvirt."""

    def networkLookupByName(self, name):
        if name not in NETWORKS:
            raise LibvirtError(43)
        return types.SimpleNamespace(isActive=lambda: name != "off", XMLDesc=lambda _flags: NETWORKS[name])

    def nwfilterLookupByName(self, name):
        if name == "broken":
            raise LibvirtError(38)
        if name != "clean-traffic":
            raise LibvirtError(62)
        return name

    def secretLookupByUUIDString(self, uuid):
        if uuid not in SECRETS:
            raise LibvirtError(66)

        def value(_flags):
            if SECRETS[uuid] is None:
                raise LibvirtError(66)
            return SECRETS[uuid]

        return types.SimpleNamespace(XMLDesc=lambda _flags: "<secret/>", value=value)

    def secretLookupByUsage(self, _kind, usage):
        return self.secretLookupByUUIDString(usage)


def place(kind="file", **more):
    return {"exists": True, "kind": kind, "size": 10, "digest": "d", "shared": "", **more}


NOTHING = {"exists": False}
CAPABILITIES = (
    "<domainCapabilities><os><enum name='firmware'><value>efi</value></enum></os>"
    "<devices><tpm><enum name='backendModel'><value>emulator</value></enum></tpm></devices></domainCapabilities>"
)
HOST = {
    "places": {
        "/iso/a": place(), "/boot/vmlinuz": place(), "/fw/code": place(), "/dev/urandom": place("character"), "/usr/bin/virtiofsd": place(),
        "/run/ovs": place("folder"), "/run/ovs/sock": place("socket"), "/var/log": place("folder"), "/srv/nfs": place("folder", shared="nfs4 nas:/x /"),
        "/srv/own": place("folder"),
    },
    "trees": {}, "links": {"br0": "bridge", "eth0": "device", "ovs-system": "device", "ovsbr": "device"}, "addresses": ["10.0.0.2", "127.0.0.1"],
    "ports": ["0.0.0.0 22", "10.0.0.2 5999"], "processors": [0, 1], "nodes": [0],
    "hugepages": {"2048": {"total": 100, "free": 64}, "default": {"total": 100, "free": 64, "size": 2048}},
    "pci": {"0000:01:00.0": "0x8086:0x1"}, "mdev": ["m1"], "usb": ["1234:abcd"], "hooks": {},
}  # fmt: skip


def found(text, live=True, here=None, there=None, cdrom="refuse"):
    root = ElementTree.fromstring(f"<domain type='kvm'><name>web1</name><uuid>u</uuid><memory unit='MiB'>128</memory>{text}</domain>")
    sides = guest_check.Sides(
        LIBVIRT, There(), live, cdrom, HOST if here is None else here, HOST if there is None else there, ElementTree.fromstring(CAPABILITIES)
    )
    return guest_check.findings(guest_needs.needs(root), sides), sides


def device(text):
    return f"<devices>{text}</devices>"


DISK = "<disk type='file' device='{0}'>{1}<target dev='sda'/>{2}</disk>"
CD = DISK.format("cdrom", "<source file='{0}'/>", "<readonly/>")

# Guest, the way in which it can move; and what of the destination is taken away, or changed in the guest, so that it cannot.
OBSTACLES = {
    "bridge": (device("<interface type='bridge'><source bridge='br0'/></interface>"), "br0", "brX", "networks", "the bridge brX does not exist"),
    "no bridge": (device("<interface type='bridge'><source bridge='br0'/></interface>"), "br0", "eth0", "networks", "eth0 is no bridge"),
    "direct": (device("<interface type='direct'><source dev='eth0' mode='bridge'/></interface>"), "eth0", "eth9", "networks", "the device eth9 does not exist"),
    "open vswitch": (
        device("<interface type='bridge'><source bridge='ovsbr'/><virtualport type='openvswitch'/></interface>"), "ovsbr", "x", "networks", "does not exist",
    ),
    "network": (device("<interface type='network'><source network='default'/></interface>"), "default", "dmz", "networks", "the network dmz does not exist"),
    "network off": (device("<interface type='network'><source network='default'/></interface>"), "default", "off", "networks", "off is not active"),
    "port group": (
        device("<interface type='network'><source network='default' portgroup='green'/></interface>"), "green", "red", "networks", "no port group red",
    ),
    "vhostuser": (
        device("<interface type='vhostuser'><source type='unix' path='/run/ovs/sock' mode='client'/></interface>"),
        "/sock", "/none", "networks", "/run/ovs/none",
    ),
    "kind of interface": (device("<interface type='null'/>"), "'null'", "'warp'", "networks", "of a kind that is not known (warp)"),
    "name": (device("<interface type='null'><target dev='web1-a'/></interface>"), "web1-a", "eth0", "networks", "the name eth0 of the interface is taken"),
    "filter": (
        device("<interface type='null'><filterref filter='clean-traffic'/></interface>"), "clean-traffic", "other", "nwfilters", "filter other does not exist",
    ),
    "filters that cannot be asked": (
        device("<interface type='null'><filterref filter='clean-traffic'/></interface>"), "clean-traffic", "broken", "nwfilters", "cannot tell whether",
    ),
    "listen": (device("<graphics type='vnc' autoport='yes' listen='10.0.0.2'/>"), "10.0.0.2", "10.0.0.9", "graphics", "listens on 10.0.0.9"),
    "port": (device("<graphics type='vnc' autoport='no' port='5998' listen='10.0.0.2'/>"), "5998", "5999", "graphics", "port 5999, which is taken"),
    "console file": (device("<serial type='file'><source path='/var/log/a'/></serial>"), "/var/log/", "/var/none/", "channels", "the folder /var/none"),
    "console port": (
        device("<serial type='tcp'><source mode='bind' host='0.0.0.0' service='23'/></serial>"), "'23'", "'22'", "channels", "port 22, which is taken",
    ),
    "channel": (
        device("<channel type='unix'><source mode='connect' path='/run/ovs/sock'/></channel>"), "/sock", "/none", "channels", "/run/ovs/none, is not on",
    ),
    "kind of channel": (device("<channel type='pty'/>"), "pty", "warp", "channels", "not known (warp)"),
    "random": (device("<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"), "urandom", "hwrng", "channels", "/dev/hwrng, is not on"),
    "cdrom": (device(CD.format("/iso/a")), "/iso/a", "/iso/b", "cdrom", "is not on this host"),
    "kernel": ("<os><kernel>/boot/vmlinuz</kernel></os>", "vmlinuz", "other", "files", "the kernel, /boot/other, is not on the destination"),
    "firmware": ("<os><loader>/fw/code</loader></os>", "code", "other", "firmware", "/fw/other, is not on the destination"),
    "kind of firmware": ("<os firmware='efi'/>", "efi", "bios", "firmware", "does not offer firmware of the kind bios"),
    "tpm": (device("<tpm><backend type='emulator'/></tpm>"), "emulator", "external", "tpm", "does not offer an emulated TPM"),
    "own tpm": (device("<tpm><backend type='emulator'/></tpm>"), "emulator", "passthrough", "tpm", "its keys stay in it"),
    "huge pages": ("<memoryBacking><hugepages/></memoryBacking>", "<hugepages/>", "<hugepages><page size='1' unit='G'/></hugepages>", "hugepages", "no huge"),
    "processors": ("<vcpu cpuset='0-1'>1</vcpu>", "0-1", "0-3", "numa", "no 2, 3 of the processors"),
    "nodes": ("<numatune><memory nodeset='0'/></numatune>", "'0'", "'1'", "numa", "no 1 of the NUMA nodes"),
    "secret": (device("<disk><encryption><secret type='passphrase' uuid='u1'/></encryption></disk>"), "u1", "u9", "secrets", "the secret u9 is not on"),
    "secret's value": (device("<disk><auth><secret type='ceph' usage='u1'/></auth></disk>"), "u1", "u2", "secrets", "the secret for u2 has no value"),
    "program": (
        device("<filesystem type='x'><binary path='/usr/bin/virtiofsd'/><source dir='/srv/nfs'/></filesystem>"),
        "virtiofsd", "none", "programs", "/usr/bin/none",
    ),
    "folder": (device("<filesystem type='x'><source dir='/srv/nfs'/></filesystem>"), "/srv/nfs", "/srv/own", "filesystems", "nothing proves that"),
}  # fmt: skip


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_obstacle_is_named_and_nothing_else_is(name):
    text, word, other, check, sentence = OBSTACLES[name]
    assert word in text
    assert found(text)[0] == []
    findings = found(text.replace(word, other))[0]
    assert [each.check for each in findings] == [check]
    assert sentence in findings[0].sentence


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_destination_that_nobody_has_looked_at_is_not_trusted(name):
    """What is not known is refused: but for what libvirt itself answers."""
    text = OBSTACLES[name][0]
    needs = guest_needs.needs(ElementTree.fromstring(f"<domain><memory>1</memory>{text}</domain>"))
    sides = guest_check.Sides(LIBVIRT, There(), True, capabilities=ElementTree.fromstring(CAPABILITIES))
    by_looking = [need for need in needs if need.test not in ("network", "nwfilter", "secret", "domcaps")]
    assert [each.check for each in guest_check.findings(needs, sides)] == [need.check for need in by_looking]


HOST_DEVICES = {
    "<hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/><product id='0xabcd'/></source></hostdev>": ("abcd", "0001", "the USB device 1234:0001"),
    "<hostdev mode='subsystem' type='pci'><source><address domain='0' bus='0x01' slot='0' function='0'/></source></hostdev>": (
        "0x01", "0x02", "the PCI device 0000:02:00.0 is not there",
    ),
    "<hostdev mode='subsystem' type='mdev'><source><address uuid='m1'/></source></hostdev>": ("m1", "m2", "the mediated device m2"),
    "<hostdev mode='subsystem' type='mdev'><source><address uuid='m1' /></source></hostdev>": ("type='mdev'", "type='scsi'", "cannot be told"),
}  # fmt: skip


@pytest.mark.parametrize("text", HOST_DEVICES)
def test_a_device_of_the_hosts(text):
    word, other, sentence = HOST_DEVICES[text]
    assert found(device(text), live=False)[0] == []
    (finding,) = found(device(text.replace(word, other)), live=False)[0]
    assert (finding.check, sentence in finding.sentence) == ("hostdev", True)


def test_a_slot_of_the_same_number_is_not_the_same_device():
    there = {**HOST, "pci": {"0000:01:00.0": "0x10de:0x2"}}
    (finding,) = found(device(list(HOST_DEVICES)[1]), live=False, there=there)[0]
    assert "another kind of device" in finding.sentence


@pytest.mark.parametrize(
    ("cdrom", "there", "sentence", "brought"),
    [
        ("refuse", NOTHING, "copy it there (or kvm_migrate_cdrom=carry), or have it ejected (kvm_migrate_cdrom=eject)", []),
        ("refuse", place(digest="e"), "is another file on the destination", []),
        ("carry", NOTHING, None, ["/iso/a"]),
        ("carry", place(digest="e"), "is another file on the destination", []),
        ("carry", place(), None, []),
        ("eject", NOTHING, None, []),
    ],
)
@pytest.mark.parametrize("drive", ["cdrom", "floppy", "disk"])
def test_what_lies_in_a_drive(drive, cdrom, there, sentence, brought):
    other = copy.deepcopy(HOST)
    other["places"]["/iso/a"] = there
    findings, sides = found(device(CD.format("/iso/a").replace("cdrom", drive)), there=other, cdrom=cdrom)
    if drive == "disk" and cdrom == "eject":
        assert ["is not on the destination: copy it there" in each.sentence for each in findings] == [True], "a disk that is only read is not ejected"
        return
    assert [sentence.split(", or have")[0] in each.sentence for each in findings] == ([True] if sentence else [])
    assert sides.brought == brought


@pytest.mark.parametrize(("change", "refused"), [({"digest": "e"}, True), ({"digest": None}, True), ({}, False)])
def test_a_kernel_is_the_same_by_its_digest(change, refused):
    there = copy.deepcopy(HOST)
    there["places"]["/boot/vmlinuz"].update(change)
    assert bool(found("<os><kernel>/boot/vmlinuz</kernel></os>", there=there)[0]) is refused


def test_another_build_of_the_firmware_will_do_and_another_size_will_not():
    there = copy.deepcopy(HOST)
    there["places"]["/fw/code"]["digest"] = "e"
    assert found("<os><loader>/fw/code</loader></os>", there=there)[0] == []
    there["places"]["/fw/code"]["size"] = 11
    assert "another size" in found("<os><loader>/fw/code</loader></os>", there=there)[0][0].sentence


def test_huge_pages_have_to_be_free():
    there = copy.deepcopy(HOST)
    there["hugepages"]["default"]["free"] = 63
    assert found("<memoryBacking><hugepages/></memoryBacking>")[0] == []
    assert (
        "takes 64 huge pages of 2048 KiB, and the destination has 63 free" in found("<memoryBacking><hugepages/></memoryBacking>", there=there)[0][0].sentence
    )


def test_a_running_guest_does_not_leave_its_folders_server():
    text = device("<filesystem type='mount'><source dir='/srv/nfs'/></filesystem>")
    assert found(text, live=False)[0] == []
    assert "kvm_migrate_mode=offline" in found(text)[0][0].sentence


def test_what_libvirt_makes_itself_is_not_looked_for():
    text = device(
        "<channel type='unix'><source mode='bind' path='/run/libvirt/qemu/channel/1-web1/a'/></channel><interface type='null'><target dev='vnet3'/></interface>"
        "<graphics type='spice' autoport='yes' port='5900' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/></graphics>"
    )
    assert found(text)[0] == []


def test_each_check_that_a_row_names_is_made():
    """A row that promises a proof has somebody who looks."""
    made = {
        "cdrom", "snapshots", "checkpoints", "managed_save", "job", "hooks", "cpu", "machine", "memory", "storage", "definition", "disks", "inside_snapshots",
    }  # fmt: skip
    made |= {check for _text, _word, _other, check, _sentence in OBSTACLES.values()} | {"hostdev"}
    rows = [row for row in (*guest_rows.INVENTORY.rows, *guest_rows.BESIDE) if row.fate == "same" and row.check]
    assert sorted({row.check for row in rows} - made) == []


STATE = "<domain><name>web1</name><uuid>u-1</uuid><os><nvram>/nv/web1</nvram></os><devices><tpm><backend type='emulator'/></tpm></devices></domain>"


def seen(nvram=(), tpm=(), marks=()):
    return {"trees": {"/nv/web1": list(nvram), "/var/lib/libvirt/swtpm/u-1": list(tpm)}, "places": {mark: {"exists": True} for mark in marks}}


@pytest.mark.parametrize(
    ("there", "refused", "travels"),
    [
        (seen(), [], ["nvram", "tpm"]),
        (seen(nvram=["other"]), ["nvram"], ["nvram", "tpm"]),
        (seen(nvram=["n"]), [], ["tpm"]),  # on storage that both hosts mount
        (seen(nvram=["other"], marks=["/nv/web1.web1.arriving"]), [], ["nvram", "tpm"]),
        (seen(nvram=["n"], tpm=["x"], marks=["/nv/web1.web1.arriving"]), ["tpm"], ["nvram", "tpm"]),
    ],
)
def test_variables_and_tpm(there, refused, travels):
    root, here = ElementTree.fromstring(STATE), seen(nvram=["n"], tpm=["t"])
    assert [each.check for each in state.findings(root, "web1", here, there)] == refused
    assert [each["what"] for each in state.travelling(root, "web1", here, there)] == travels


def test_memory_that_an_earlier_guest_left_is_not_resumed_over_a_newer_disk():
    root, there = ElementTree.fromstring("<domain><name>web1</name></domain>"), seen(marks=["/var/lib/libvirt/qemu/save/web1.save"])
    (finding,) = state.findings(root, "web1", seen(), there)
    assert (finding.check, finding.check in guest_findings.ALWAYS_HEEDED) == ("managed_save", True)


def test_variables_that_nobody_has_looked_at_keep_a_guest_where_it_is():
    assert [each.check for each in state.findings(ElementTree.fromstring(STATE), "web1", None, None)] == ["nvram", "tpm"]


@pytest.mark.parametrize(
    ("here", "there", "refused"),
    [([], ["os/loader/@format"], True), ([], [], False), (["os/loader/@format"], ["os/loader/@format"], False), ([], None, False), (None, ["os"], False)],
)
def test_a_part_that_an_older_libvirt_does_not_know(here, there, refused):
    found = releases.parts({"unknown_parts": here}, {"unknown_parts": there})
    assert [each.check for each in found] == (["definition"] if refused else [])


def test_all_that_is_in_the_way_is_said_at_once():
    findings = [guest_findings.Finding("cpu", "no"), guest_findings.Finding("networks", "nor that"), guest_findings.Finding("hooks", "by the way", False)]
    assert guest_findings.refusal(findings, "web1", ()) == (
        "web1 cannot be moved: (1) no; (2) nor that. To move it all the same: kvm_migrate_ignore=cpu,networks. Explained: "
        "https://livefleet.github.io/handover/troubleshooting.html#guest-cpu https://livefleet.github.io/handover/troubleshooting.html#guest-networks"
    )
    assert guest_findings.refusal(findings, "web1", {"cpu"}).startswith("web1 cannot be moved: nor that. To move")
    assert guest_findings.check(findings, "web1", {"cpu", "networks"}) == ["by the way"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("cpu", None), ("element:devices/teleport", None), ("netwoks", "did you mean networks"), ("managed_save", "never ignored"), ("zzz", "the checks are")],
)
def test_a_name_in_ignore_is_one_of_a_check(name, text):
    said = guest_findings.unknown({name})
    assert said is None if text is None else text in said


def test_addresses_and_ports_are_the_kernels(tmp_path):
    net = tmp_path / "proc" / "net"
    net.mkdir(parents=True)
    head = "  sl  local_address rem_address   st\n"
    (net / "tcp").write_text(head + "   0: 0200000A:1770 00000000:0000 0A\n   1: 0200000A:0016 00000000:0000 01\n")
    (net / "tcp6").write_text(head + "   0: 00000000000000000000000000000000:0016 0:0 0A\n")
    (net / "fib_trie").write_text("     |-- 10.0.0.2\n        /32 host LOCAL\n     |-- 10.0.0.9\n        /32 link UNICAST\n")
    (net / "if_inet6").write_text("fe80000000000000000000fffe000001 02 40 20 80 eth0\n")
    assert host_look.ports(str(tmp_path)) == ["10.0.0.2 6000", ":: 22"]
    assert host_look.addresses(str(tmp_path)) == ["10.0.0.2", "fe80::ff:fe00:1"]


def test_a_tree_has_owner_mode_and_digest(tmp_path):
    (tmp_path / "tpm2").mkdir(mode=0o700)
    (tmp_path / "tpm2" / "state").write_bytes(b"keys")
    (tmp_path / "tpm2" / "state").chmod(0o640)
    entries = {entry["path"]: entry for entry in host_look.tree(str(tmp_path))}
    assert sorted(entries) == [".", "tpm2", "tpm2/state"]
    assert (entries["tpm2/state"]["mode"], entries["tpm2"]["mode"]) == ("0640", "0700")
    before = host_look.tree(str(tmp_path))
    (tmp_path / "tpm2" / "state").write_bytes(b"kezs")
    assert host_look.tree(str(tmp_path)) != before
    assert host_look.tree(str(tmp_path / "nowhere")) == []


def test_storage_that_others_mount_is_known_by_what_is_mounted(monkeypatch):
    mounts = [host_look.Mount("8:1", "/", "ext4", "/dev/a"), host_look.Mount("0:9", "/srv/nfs", "nfs4", "nas:/x")]
    assert host_look.shared_from("/srv/nfs/web/a", mounts) == "nfs4 nas:/x /web/a"
    assert host_look.shared_from("/srv/own", mounts) == ""
    assert host_look.part_mounted("/srv/nfs", "36 35 0:9 /part /srv/nfs rw - nfs4 nas:/x rw\n") == "/part"
