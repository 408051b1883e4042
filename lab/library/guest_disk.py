# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: what a virtual machine boots from, made from unpacked packages."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_disk
short_description: Make a virtual machine's kernel, initial RAM disk and root disk
description:
  - Takes a folder that holds C(kernel) (an unpacked kernel package), C(root) (the guest's unpacked packages) and
    C(programs) (built for it), and leaves C(vmlinuz), C(initrd) and C(disk.raw) in their place.
attributes:
  check_mode: {support: none}
  diff_mode: {support: none}
options:
  folder:
    description: Where all that is.
    type: path
    required: true
  source:
    description: The guest's own files, as C(initrd) and C(rootfs).
    type: path
    required: true
  modules:
    description: The drivers that the initial RAM disk loads. What they need comes before them.
    type: list
    elements: str
    required: true
  label:
    description: The label of the root file system.
    type: str
    required: true
  size:
    description: The size of the root disk, as C(mkfs.ext4) takes it.
    type: str
    required: true
"""

RETURN = r"""
kernel:
  description: The kernel's version.
  type: str
  returned: success
  sample: 6.12.48+deb13-cloud-amd64
modules:
  description: The drivers, in the order in which they are loaded.
  type: list
  returned: success
  sample: [virtio.ko, virtio_ring.ko, virtio_pci.ko]
"""

EXAMPLES = r"""
- name: Make the kernel, the initial RAM disk and the root disk
  guest_disk:
    folder: /var/cache/handover-lab/building/small.x1
    source: "{{ playbook_dir }}/guests/small"
    modules: [virtio_blk, ext4]
    label: root
    size: 256M
"""

import lzma
import pathlib
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule


class BuildError(Exception):
    """What went wrong, in one sentence."""


def run(*argv: str, cwd: pathlib.Path | None = None, given: str | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def merge(source: pathlib.Path, target: pathlib.Path) -> None:
    """Lays a folder over another."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def needed_modules(kernel: pathlib.Path, version: str, names: list[str]) -> list[pathlib.Path]:
    """The files of drivers and of all that they need, each after what it needs."""
    run("depmod", "--basedir", str(kernel), version)
    found: dict[pathlib.Path, None] = {}
    for name in names:
        for line in run("modprobe", "--dirname", str(kernel), "--set-version", version, "--show-depends", name).splitlines():
            # Lines are `insmod PATH` or, for what is in the kernel itself, `builtin NAME`.
            if line.startswith("insmod "):
                found[pathlib.Path(line.split()[1])] = None
    return list(found)


def build(folder: pathlib.Path, source: pathlib.Path, names: list[str], label: str, size: str) -> dict:
    kernel, root = folder / "kernel", folder / "root"
    if not (kernel / "lib").exists():
        (kernel / "lib").symlink_to("usr/lib")
    versions = sorted(path.name for path in (kernel / "lib" / "modules").iterdir())
    if len(versions) != 1:
        raise BuildError(f"{kernel}: one kernel was expected there, not {', '.join(versions) or 'none'}")
    modules = needed_modules(kernel, versions[0], names)

    initrd = folder / "initrd.d"
    for name in ("bin", "dev", "modules", "proc", "root", "sys"):
        (initrd / name).mkdir(parents=True)
    shutil.copy2(root / "usr/bin/busybox", initrd / "bin/busybox")
    for path in modules:
        data = path.read_bytes()
        (initrd / "modules" / path.name.removesuffix(".xz")).write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
    order = [path.name.removesuffix(".xz") for path in modules]
    (initrd / "modules/order").write_text("".join(f"/modules/{name}\n" for name in order), encoding="ascii")
    merge(source / "initrd", initrd)
    (initrd / "bin/sh").symlink_to("busybox")
    files = "\n".join(sorted(str(path.relative_to(initrd)) for path in initrd.rglob("*")))
    run("cpio", "--create", "--quiet", "--format=newc", "--owner=0:0", f"--file={folder / 'initrd'}", cwd=initrd, given=files + "\n")
    shutil.copy2(kernel / "boot" / f"vmlinuz-{versions[0]}", folder / "vmlinuz")

    for name in ("dev", "proc", "sys", "run", "tmp", "root", "var"):
        (root / name).mkdir(exist_ok=True)
    # Unpacked packages are all below /usr.
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(exist_ok=True)
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    merge(source / "rootfs", root)
    merge(folder / "programs", root)
    run("chroot", str(root), "/usr/bin/busybox", "--install", "-s", "/usr/bin")
    disk = folder / "disk.raw"
    run("mkfs.ext4", "-q", "-F", "-L", label, "-E", "root_owner=0:0", "-d", str(root), str(disk), size)

    for leftover in (kernel, root, initrd, folder / "programs"):
        shutil.rmtree(leftover)
    return {"changed": True, "kernel": versions[0], "modules": order}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "source": {"type": "path", "required": True},
            "modules": {"type": "list", "elements": "str", "required": True},
            "label": {"type": "str", "required": True},
            "size": {"type": "str", "required": True},
        },
    )
    asked = module.params
    try:
        result = build(pathlib.Path(asked["folder"]), pathlib.Path(asked["source"]), asked["modules"], asked["label"], asked["size"])
    except (BuildError, OSError, lzma.LZMAError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
