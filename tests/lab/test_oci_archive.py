# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container image archives: the same folder is the same image, down to the byte."""

import importlib.util
import json
import os
import pathlib
import tarfile

import pytest

MODULE = pathlib.Path(__file__).parents[2] / "lab" / "library" / "oci_archive.py"


@pytest.fixture(name="oci", scope="module")
def oci_archive():
    """The module, as it is imported by Ansible."""
    spec = importlib.util.spec_from_file_location("oci_archive", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_root(path, order=1):
    """A small root file system; the order in which it is made must not matter."""
    path.mkdir()
    for name in ["bin", "etc", "tmp"][::order]:
        (path / name).mkdir()
    for name, content in [("bin/sh", b"\x7fELF"), ("etc/passwd", b"root:x:0:0::/:/bin/sh\n")][::order]:
        (path / name).write_bytes(content)
    (path / "bin/sh").chmod(0o755)
    os.link(path / "bin/sh", path / "bin/ash")
    (path / "lib").symlink_to("bin")
    (path / "tmp").chmod(0o1777)
    return path


def archive(oci, root, dest):
    """Packs a root and returns the image's id."""
    return oci.write_archive({
        "root": str(root), "dest": str(dest), "reference": "localhost/test:lab", "architecture": "amd64",
        "config": {"Cmd": ["/bin/sh"]},
    })


def test_same_folder_same_bytes(oci, tmp_path):
    first = archive(oci, make_root(tmp_path / "a"), tmp_path / "a.tar")
    second = archive(oci, make_root(tmp_path / "b", order=-1), tmp_path / "b.tar")
    assert first == second == oci.read_id(tmp_path / "a.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_one_byte_more_is_another_image(oci, tmp_path):
    first = archive(oci, make_root(tmp_path / "a"), tmp_path / "a.tar")
    (tmp_path / "a/etc/passwd").write_bytes(b"root:x:0:0::/:/bin/ash\n")
    assert archive(oci, tmp_path / "a", tmp_path / "b.tar") != first


def test_layer_holds_what_the_folder_held(oci, tmp_path):
    archive(oci, make_root(tmp_path / "a"), tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as outer:
        index = json.load(outer.extractfile("index.json"))
        manifest = json.load(outer.extractfile(oci.blob_path(index["manifests"][0]["digest"])))
        layer = tarfile.open(fileobj=outer.extractfile(oci.blob_path(manifest["layers"][0]["digest"])))
        members = {member.name: member for member in layer}
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == "localhost/test:lab"
    assert sorted(members) == ["bin", "bin/ash", "bin/sh", "etc", "etc/passwd", "lib", "tmp"]
    assert members["lib"].issym() and members["lib"].linkname == "bin"
    assert members["bin/sh"].islnk() and members["bin/sh"].linkname == "bin/ash"
    assert members["tmp"].mode == 0o1777 and members["bin/ash"].mode == 0o755


def test_failed_write_leaves_no_archive(oci, tmp_path):
    with pytest.raises(OSError):
        archive(oci, make_root(tmp_path / "a"), tmp_path / "missing" / "a.tar")
    assert not list(tmp_path.glob("**/*.tar*"))
