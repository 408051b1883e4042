# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: a container image archive made from a folder."""

from __future__ import annotations

DOCUMENTATION = r"""
module: oci_archive
short_description: Pack a root file system as an OCI image archive
description:
  - Writes the archive that C(podman load) reads, with one layer. The same folder and configuration give the same
    bytes, so the image has the same id wherever it is loaded.
  - Takes ordinary files, folders and links with their owners and modes. Device nodes, sockets and extended
    attributes are left out.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  root:
    description: The root file system.
    type: path
    required: true
  dest:
    description: The archive. It is not written again if it is there.
    type: path
    required: true
  reference:
    description: The name that the image is loaded under.
    type: str
    required: true
  architecture:
    description: As Go names it.
    type: str
    required: true
  config:
    description: The image's run configuration as OCI spells it, with C(Entrypoint), C(Env) and the like.
    type: dict
    default: {}
"""

RETURN = r"""
id:
  description: The image's id.
  type: str
  returned: when the archive is there
  sample: 7bd0c5f0a3cd0bd6a6cc23dc2ff6fa1a0c8a43fbd8a91c1a9a5f0d2fdb6a7f51
"""

EXAMPLES = r"""
- name: Pack the image
  oci_archive:
    root: /var/tmp/root
    dest: /var/tmp/image.tar
    reference: localhost/handover/tools:lab
    architecture: amd64
    config:
      Entrypoint: [/bin/sh]
"""

import hashlib
import io
import json
import os
import tarfile
import tempfile

from ansible.module_utils.basic import AnsibleModule

# One instant for every file and for the image itself.
EPOCH = 1735689600
CREATED = "2025-01-01T00:00:00Z"


class HashingFile:
    """A file that is written once, and knows the digest of what was written."""

    def __init__(self, file) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Writes and counts."""
        self._digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    @property
    def digest(self) -> str:
        """The digest of everything so far, as OCI writes it."""
        return "sha256:" + self._digest.hexdigest()


def write_layer(root: str, file) -> HashingFile:
    """Packs a folder, in an order and with times that depend on nothing but its content."""
    out = HashingFile(file)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as layer:
        for parent, folders, names in os.walk(root):
            folders.sort()
            for name in sorted([*folders, *names]):
                path = os.path.join(parent, name)
                info = layer.gettarinfo(path, arcname=os.path.relpath(path, root))
                if info is None or info.ischr() or info.isblk() or info.isfifo():
                    continue
                info.mtime = EPOCH
                info.uname = info.gname = ""
                if info.isreg():
                    with open(path, "rb") as content:
                        layer.addfile(info, content)
                else:
                    layer.addfile(info)
    return out


def write_archive(params: dict) -> str:
    """Writes the archive, whole or not at all, and returns the image's id."""
    folder = os.path.dirname(params["dest"])
    with tempfile.TemporaryFile(dir=folder) as layer_file:
        layer = write_layer(params["root"], layer_file)
        layer_file.seek(0)
        config = as_json({
            "architecture": params["architecture"],
            "config": params["config"],
            "created": CREATED,
            "history": [{"created": CREATED, "created_by": "handover lab"}],
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        })
        manifest = as_json({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer.digest,
                "size": layer.size,
            }],
        })
        index = as_json({
            "schemaVersion": 2,
            "manifests": [{
                **descriptor("application/vnd.oci.image.manifest.v1+json", manifest),
                "annotations": {"org.opencontainers.image.ref.name": params["reference"]},
            }],
        })
        partial = params["dest"] + ".partial"
        with tarfile.open(partial, mode="w", format=tarfile.PAX_FORMAT) as archive:
            add(archive, "oci-layout", as_json({"imageLayoutVersion": "1.0.0"}))
            add(archive, "index.json", index)
            for blob in (config, manifest):
                add(archive, blob_path(digest_of(blob)), blob)
            add(archive, blob_path(layer.digest), layer_file, layer.size)
    os.rename(partial, params["dest"])
    return digest_of(config).removeprefix("sha256:")


def read_id(path: str) -> str:
    """The id of the image in an archive."""
    with tarfile.open(path) as archive:
        index = json.load(archive.extractfile("index.json"))
        manifest = json.load(archive.extractfile(blob_path(index["manifests"][0]["digest"])))
    return manifest["config"]["digest"].removeprefix("sha256:")


def add(archive: tarfile.TarFile, name: str, content, size: int | None = None) -> None:
    """Adds one member with fixed attributes."""
    info = tarfile.TarInfo(name)
    info.mtime = EPOCH
    info.size = len(content) if size is None else size
    archive.addfile(info, io.BytesIO(content) if size is None else content)


def descriptor(media_type: str, blob: bytes) -> dict:
    """How OCI points at a blob."""
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def digest_of(blob: bytes) -> str:
    """A blob's digest, as OCI writes it."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def blob_path(digest: str) -> str:
    """Where a blob stands in the archive."""
    return "blobs/" + digest.replace(":", "/")


def as_json(value: dict) -> bytes:
    """JSON with one spelling for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "reference": {"type": "str", "required": True},
            "architecture": {"type": "str", "required": True},
            "config": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    if os.path.exists(module.params["dest"]):
        module.exit_json(changed=False, id=read_id(module.params["dest"]))
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        image_id = write_archive(module.params)
    except OSError as error:
        module.fail_json(msg=f"{module.params['dest']}: {error}")
    module.exit_json(changed=True, id=image_id)


if __name__ == "__main__":
    main()
