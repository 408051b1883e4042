# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Deployments that no build machine has: what is known of them is where they lay things, so a tree of files stands for each."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import osd as ceph_osd
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError

FSID = "5ad7e3a2-5a0f-4f0c-9d1c-0c3b6c1f7e11"


class Host:
    """A host's tools: what each unit runs, and which containers there are."""

    def __init__(self, units: dict[str, str] | None = None, containers: t.Sequence[str] = (), engine: str = "podman") -> None:
        self.units = units or {}
        self.containers = containers
        self.engine = engine

    def find(self, tool: str) -> str | None:
        return f"/usr/bin/{tool}" if tool not in ("podman", "docker") or tool == self.engine else None

    def tool(self, tool: str, package: str) -> str:
        return f"/usr/bin/{tool}"

    def run(self, argv: t.Sequence[str], **_options: t.Any) -> Completed:
        if "systemctl" in argv[0]:
            # What starts it, and after an empty line what stops it.
            commands = self.units.get(argv[-1], "{ path=/usr/bin/ceph-osd ; argv[]=/usr/bin/ceph-osd -f }").split("\n\n")
            text = "\n\n".join(commands if "ExecStop" in argv[2] else commands[:1])
        else:
            text = "\n".join(self.containers)
        return Completed(tuple(argv), 0, text + "\n", "")


def tree(root: Path, *homes: str) -> str:
    for home in homes:
        (root / home).mkdir(parents=True)
        (root / home / "type").write_text("bluestore\n")
    (root / "proc").mkdir(exist_ok=True)
    return str(root)


def process(root: Path, pid: int, *argv: str) -> None:
    (root / "proc" / str(pid)).mkdir(parents=True)
    (root / "proc" / str(pid) / "cmdline").write_text("\0".join(argv) + "\0")


def test_packaged(tmp_path: Path) -> None:
    root = tree(tmp_path, "var/lib/ceph/osd/ceph-2", "var/lib/ceph/osd/backup-11")
    found = ceph_osd.find_osds(Host(), root)
    assert [(osd.id, osd.layout.deployment, osd.unit, osd.socket.path) for osd in found] == [
        (2, "packaged", "ceph-osd@2.service", "/var/run/ceph/ceph-osd.2.asok"),
        (11, "packaged", "ceph-osd@11.service", "/var/run/ceph/backup-osd.11.asok"),
    ]
    assert found[0].tool(Host(), "ceph-bluestore-tool") == ["/usr/bin/ceph-bluestore-tool"]
    assert found[0].store() == "bluestore"


@pytest.mark.parametrize(
    "commands",
    [
        "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run --rm --name=ceph-osd-2 … }",
        # Since version 8.
        "{ path=/bin/bash ; argv[]=/bin/bash /var/lib/ceph/osd/ceph-2/run /run ceph-osd@2 ; … }\n\n{ path=/usr/bin/docker ; argv[]=/usr/bin/docker stop … }",
    ],
)
def test_ceph_ansible_in_containers(tmp_path: Path, commands: str) -> None:
    root = tree(tmp_path, "var/lib/ceph/osd/ceph-2")
    host = Host({"ceph-osd@2.service": commands}, ["ceph-mon-a", "ceph-osd-2"], "docker")
    (osd,) = ceph_osd.find_osds(host, root)
    assert (osd.layout.deployment, osd.unit) == ("ceph-ansible", "ceph-osd@2.service")
    assert osd.tool(host, "ceph-bluestore-tool") == ["/usr/bin/docker", "exec", "ceph-osd-2", "ceph-bluestore-tool"]
    assert (osd.shared, osd.seen) == ("/var/run/ceph", "/var/run/ceph")


@pytest.mark.parametrize("container", [f"ceph-{FSID}-osd-7", f"ceph-{FSID}-osd.7"])
def test_cephadm(tmp_path: Path, container: str) -> None:
    root = tree(tmp_path, f"var/lib/ceph/{FSID}/osd.7")
    (tmp_path / f"var/lib/ceph/{FSID}/osd.7_1700000000").mkdir()
    unit = f"ceph-{FSID}@osd.7.service"
    host = Host({unit: f"{{ path=/bin/bash ; argv[]=/bin/bash /var/lib/ceph/{FSID}/osd.7/unit.run }}"}, [container])
    (osd,) = ceph_osd.find_osds(host, root)
    assert (osd.id, osd.layout.deployment, osd.unit, osd.socket.path) == (7, "cephadm", unit, f"/var/run/ceph/{FSID}/ceph-osd.7.asok")
    assert osd.tool(host, "ceph-bluestore-tool") == ["/usr/bin/podman", "exec", container, "ceph-bluestore-tool"]
    assert (osd.shared, osd.seen) == (f"/var/run/ceph/{FSID}", "/var/run/ceph")


def test_a_container_that_does_not_run_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path, f"var/lib/ceph/{FSID}/osd.7")
    host = Host({f"ceph-{FSID}@osd.7.service": "unit.run"}, ["ceph-other"])
    (osd,) = ceph_osd.find_osds(host, root)
    with pytest.raises(HandoverError, match=f"osd.7 has no running container named ceph-{FSID}-osd-7 or ceph-{FSID}-osd.7 on this host: start it first"):
        osd.tool(host, "ceph-bluestore-tool")


def test_the_same_osd_twice_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path, f"var/lib/ceph/{FSID}/osd.7", "var/lib/ceph/osd/ceph-7")
    with pytest.raises(HandoverError, match="osd.7 is on this host twice, as .*: remove the folder that is not in use"):
        ceph_osd.find_osds(Host({f"ceph-{FSID}@osd.7.service": "unit.run"}), root)


def test_the_daemon_is_found_by_its_number(tmp_path: Path) -> None:
    root = tree(tmp_path, "var/lib/ceph/osd/ceph-1", "var/lib/ceph/osd/ceph-11")
    process(tmp_path, 40, "/bin/bash", "/usr/bin/ceph-osd", "--id", "1")
    process(tmp_path, 41, "/usr/bin/ceph-osd", "-f", "--cluster", "ceph", "--id", "11", "--setuser", "ceph")
    process(tmp_path, 42, "/run/podman-init", "--", "/usr/bin/ceph-osd", "-n", "osd.1", "-f")
    process(tmp_path, 43, "/usr/bin/ceph-osd", "-n", "osd.1", "-f")
    assert {osd.id: osd.pid() for osd in ceph_osd.find_osds(Host(), root)} == {1: 43, 11: 41}


def test_the_daemon_is_found_as_ceph_ansible_starts_it(tmp_path: Path) -> None:
    root = tree(tmp_path, "var/lib/ceph/osd/ceph-1")
    process(tmp_path, 41, "/usr/bin/ceph-osd", "--setuser=ceph", "-f", "-i=11")
    process(tmp_path, 42, "/usr/bin/ceph-osd", "--setuser=ceph", "-f", "-i=1")
    assert ceph_osd.find_osd(Host(), 1, root).pid() == 42


def test_an_osd_that_is_not_here_is_refused_with_those_that_are(tmp_path: Path) -> None:
    root = tree(tmp_path, "var/lib/ceph/osd/ceph-1")
    with pytest.raises(HandoverError, match=r"osd.5 is not on this host \(osd.1\): name one that is"):
        ceph_osd.find_osd(Host(), 5, root)
