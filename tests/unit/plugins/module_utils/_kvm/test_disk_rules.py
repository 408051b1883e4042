# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each disk is carried, proven to be the same, or refused: facts of two hosts, planted."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import disk_plan, disk_rules

PATH, BASE, DEVICE = "/srv/web1.qcow2", "/srv/golden.qcow2", "/dev/vg0/web1"
NOTHING = {"exists": False, "kind": "nothing", "file_system": 1, "free": 10**9}
FILE = {
    "exists": True, "kind": "file", "real": PATH, "inode": 7, "size": 196624, "allocated": 4096, "mode": "0600", "file_system": 1, "free": 10**9,
}  # fmt: skip
BLOCK = {"exists": True, "kind": "block", "real": "/dev/dm-1", "size": 1 << 30, "identity": "", "file_system": 9, "free": 0}


def disk(**changes):
    path = changes.get("path", PATH)
    known = {"target": "vda", "kind": "file", "path": path, "pool": "", "volume": "", "format": "qcow2", "read_only": False, "shareable": False, "problem": ""}
    return {**known, "chain": [{"path": path, "format": "qcow2", "virtual_size": 1 << 20, "cluster_size": 65536, "compat": "1.1"}], **changes}


def side(**changes):
    return {"images": {}, "users": {}, "holders": {}, "stamped": [], "ours": [], **changes}


def moved(own, here=None, there=None, **asked):
    wish = {"mode": "live", "storage": "shared", "disks": (), "shared": (), **asked}
    return disk_rules.Move("web1", here={"disks": own, **side(**(here or {}))}, there=side(**(there or {})), **wish)


def refused(move):
    return [each.sentence for each in disk_rules.findings(move) if each.refuses]


def volume(path, **changes):
    return disk(kind="block", path=path, format="raw", chain=[{"path": path, "format": "raw"}], **changes)


def devices(here="", there="", size=1 << 30):
    return {"here": {"images": {DEVICE: {**BLOCK, "identity": here}}}, "there": {"images": {DEVICE: {**BLOCK, "identity": there, "size": size}}}}


@pytest.mark.parametrize(
    ("facts", "shared", "text"),
    [
        (devices(), (), "nothing proves that /dev/vg0/web1 is the same on the destination"),
        (devices("naa.5000", "naa.6000"), (), "nothing proves"),
        (devices("naa.5000", "naa.5000"), (), None),
        (devices(), ("vda",), None),
        (devices(size=1 << 20), ("vda",), "they are two devices"),
    ],
)
def test_a_device_of_the_same_name_is_another_one_until_proven(facts, shared, text):
    found = refused(moved([volume(DEVICE)], shared=shared, **facts))
    assert (found == []) if text is None else (len(found) == 1 and text in found[0])


def test_the_way_out_is_typed_as_it_stands():
    (sentence,) = refused(moved([volume(DEVICE)], **devices()))
    assert "kvm_migrate_shared_disks=vda" in sentence


@pytest.mark.parametrize(
    ("there", "stamped", "text"),
    [
        (FILE, [PATH], None),
        (FILE, [], "nothing proves"),
        ({**FILE, "inode": 8}, [PATH], "nothing proves"),
        (NOTHING, [], "is not on the destination"),
    ],
)
def test_a_file_is_shared_where_its_stamp_is_seen(there, stamped, text):
    found = refused(moved([disk()], {"images": {PATH: FILE}}, {"images": {PATH: there}, "stamped": stamped}))
    assert (found == []) if text is None else (len(found) == 1 and text in found[0])


def test_all_of_a_chain_has_to_be_the_same():
    chain = [{"path": PATH, "format": "qcow2"}, {"path": BASE, "format": "qcow2"}]
    facts = {"images": {PATH: FILE, BASE: FILE}}
    (sentence,) = refused(moved([disk(chain=chain)], facts, {**facts, "stamped": [PATH]}))
    assert f"nothing proves that {BASE}" in sentence


@pytest.mark.parametrize("kind", ["nvme", "vhostuser", "dir", "vhostvdpa", "something-new"])
def test_what_is_this_hosts_own_does_not_move(kind):
    (sentence,) = refused(moved([disk(kind=kind, path="", chain=[])]))
    assert f"of the kind {kind}" in sentence


@pytest.mark.parametrize(
    "own", [volume(DEVICE), disk(kind="volume", path=PATH, pool="fast", volume="web1"), disk(kind="volume", path="", chain=[], pool="fast", volume="web1")]
)
@pytest.mark.parametrize("mode", ["live", "offline"])
@pytest.mark.parametrize("storage", ["copy", "incremental"])
def test_devices_and_volumes_are_not_copied(own, mode, storage):
    facts = {"images": {PATH: FILE, DEVICE: BLOCK}}
    (sentence,) = refused(moved([own], facts, facts, mode=mode, storage=storage))
    assert "image files alone are copied" in sentence or "cannot be found by libvirt" in sentence


COPIED = {"here": {"images": {PATH: FILE}}, "there": {"images": {PATH: NOTHING}}, "storage": "copy"}


def changed(**changes):
    found = copy.deepcopy(COPIED)
    for name, value in changes.items():
        where, _underscore, key = name.partition("_")
        found[where][key] = value
    return found


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (COPIED, None),
        (changed(there_images={PATH: FILE}), "is on the destination already"),
        (changed(there_images={PATH: {**NOTHING, "exists": True, "kind": "dangling"}}), "is on the destination already"),
        (changed(there_images={PATH: FILE}, there_ours=[PATH]), None),
        (changed(here_users={PATH: [{"guest": "web2", "running": False, "shareable": False}]}), "is used by web2 (which is off), too"),
        (changed(here_users={PATH: [{"guest": "web2", "running": True, "shareable": True}]}), "is used by web2 (which runs), too"),
        (changed(here_images={PATH: {**FILE, "kind": "dangling"}}), "is a link that leads nowhere"),
        (changed(here_images={PATH: {**FILE, "kind": "nothing", "exists": False}}), "is not on this host"),
        (changed(here_images={PATH: {**FILE, "allocated": 2 * 10**9}}), "which has 954 MiB free: make room there"),
    ],
)
@pytest.mark.parametrize("mode", ["live", "offline"])
def test_a_copy_writes_over_nothing_and_takes_nothing_from_others(facts, text, mode):
    found = refused(moved([disk()], mode=mode, **facts))
    assert (found == []) if text is None else (len(found) == 1 and text in found[0])


def test_disks_that_fit_one_by_one_may_not_fit_together():
    images = {path: {**FILE, "allocated": 6 * 10**8} for path in ("/srv/a", "/srv/b")}
    disks = [disk(target="vda", path="/srv/a"), disk(target="vdb", path="/srv/b")]
    move = moved(disks, {"images": images}, {"images": dict.fromkeys(images, NOTHING)}, storage="copy")
    (sentence,) = refused(move)
    assert "take 1144 MiB" in sentence
    apart = {"/srv/a": NOTHING, "/srv/b": {**NOTHING, "file_system": 2}}
    assert refused(moved(disks, {"images": images}, {"images": apart}, storage="copy")) == []


def test_an_image_may_grow_past_its_file_system_and_that_is_told():
    big = disk(chain=[{"path": PATH, "format": "qcow2", "virtual_size": 10**12}])
    (told,) = disk_rules.findings(moved([big], **COPIED))
    assert not told.refuses
    assert "may grow to" in told.sentence


def test_an_open_image_of_a_guest_that_is_off_is_not_copied():
    facts = changed(here_holders={PATH: ["qemu-nbd (pid 3)"]})
    (sentence,) = refused(moved([disk()], mode="offline", **facts))
    assert "is open in qemu-nbd (pid 3)" in sentence


def test_snapshots_inside_of_an_image_travel_with_the_file_alone():
    kept = disk()
    kept["chain"][0]["snapshots"] = ["before-upgrade"]
    (finding,) = disk_rules.findings(moved([kept], **COPIED))
    assert (finding.check, finding.refuses) == ("inside_snapshots", True)
    assert "before-upgrade" in finding.sentence
    assert disk_rules.findings(moved([kept], mode="offline", **COPIED)) == []


@pytest.mark.parametrize(
    ("base", "text"),
    [({**FILE, "digest": "a"}, None), ({**FILE, "digest": "b"}, "has other contents"), (FILE, "has other contents"), (NOTHING, "is not on the")],
)
def test_a_base_is_compared_by_its_digest(base, text):
    stands = disk(chain=[{"path": PATH, "format": "qcow2"}, {"path": BASE, "format": "qcow2"}])
    here, there = {"images": {PATH: FILE, BASE: {**FILE, "digest": "a"}}}, {"images": {PATH: NOTHING, BASE: base}}
    found = refused(moved([stands], here, there, storage="incremental"))
    assert (found == []) if text is None else (len(found) == 1 and text in found[0])


def test_two_guests_do_not_share_what_is_not_shareable():
    there = {"images": {PATH: FILE}, "stamped": [PATH], "users": {PATH: [{"guest": "db", "running": True, "shareable": False}]}}
    assert "is used by db (which runs), too" in refused(moved([disk()], {"images": {PATH: FILE}}, there))[0]
    assert refused(moved([disk(shareable=True)], {"images": {PATH: FILE}}, there)) == []


def test_libvirt_is_told_each_disk_that_it_copies():
    network = disk(target="vdb", kind="network", path="pool/web1", chain=[])
    move = moved([disk(), network], **COPIED)
    assert disk_rules.travelling(move) == ["vda"]
    assert refused(move) == []


def test_nothing_to_copy_is_no_copy():
    network = disk(target="vdb", kind="network", path="pool/web1", chain=[])
    assert "none of the disks of web1 is copied" in refused(moved([network], storage="copy"))[0]


def test_a_disk_that_does_not_exist_is_named():
    assert "and web1 has no disk vdx: it has vda" in refused(moved([disk()], disks=("vdx",), **COPIED))[0]


def test_an_image_is_made_as_it_was():
    made = disk()
    made["chain"][0].update(cluster_size=2097152, lazy_refcounts=True, refcount_bits=16)
    (image,) = disk_plan.images(moved([made], **COPIED), [{"target": "vda", "path": PATH, "format": "qcow2", "size": 1}])
    assert (image["mode"], image["size"]) == ("0600", 1 << 20)
    assert image["options"] == "cluster_size=2097152,compat=1.1,lazy_refcounts=on"
