# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each part of a guest's definition: one row a part. docs/kvm-inventory.md is made from these.

The paths of devices are in rows_devices.
"""

from __future__ import annotations

from .inventory import ANEW, CARRIED, LIVE, REFUSED, SAME, TOLD, Inventory, Row
from .rows_devices import DEFINITION, DEVICES

NOT_QEMU = "this belongs to another hypervisor, and guests of QEMU alone are moved: take it out of the definition"

MACHINE = (
    Row("@type", SAME, "the destination's libvirt offers it for this machine", "machine"),
    Row("@id", ANEW, "libvirt numbers the guests that run"),
    Row("name", CARRIED, DEFINITION),
    Row("uuid", SAME, "a namesake with another UUID on the destination is refused"),
    Row("title", CARRIED, DEFINITION),
    Row("description", CARRIED, DEFINITION),
    Row("metadata/**", CARRIED, DEFINITION),
    Row("genid", CARRIED, DEFINITION),
    Row("maxMemory/**", CARRIED, DEFINITION),
    Row("memory/**", CARRIED, "QEMU's migration; the destination has that much free", "memory"),
    Row("currentMemory/**", CARRIED, DEFINITION),
    Row("blkiotune/**", CARRIED, DEFINITION),
    Row("blkiotune/device/path", SAME, "the destination has a device of that name", "files"),
    Row("memtune/**", CARRIED, DEFINITION),
    Row("memoryBacking/**", CARRIED, DEFINITION),
    Row("memoryBacking/hugepages/**", SAME, "the destination has as many huge pages of that size free", "hugepages"),
    Row("memoryBacking/source/**", CARRIED, DEFINITION),
    Row("vcpu/**", CARRIED, DEFINITION),
    Row("vcpu/@cpuset", SAME, "the destination has those processors", "numa"),
    Row("vcpus/**", CARRIED, DEFINITION),
    Row("iothreads", CARRIED, DEFINITION),
    Row("iothreadids/**", CARRIED, DEFINITION),
    Row("defaultiothread/**", CARRIED, DEFINITION),
    Row("cputune/**", CARRIED, DEFINITION),
    Row("cputune/vcpupin/@cpuset", SAME, "the destination has those processors", "numa"),
    Row("cputune/emulatorpin/@cpuset", SAME, "the destination has those processors", "numa"),
    Row("cputune/iothreadpin/@cpuset", SAME, "the destination has those processors", "numa"),
    Row("cputune/cachetune/**", REFUSED, "the caches of a host are shared out by its own resctrl: take cachetune out, or name this check in ignore", "resctrl"),
    Row(
        "cputune/memorytune/**",
        REFUSED,
        "the memory bandwidth of a host is shared out by its own resctrl: take memorytune out, or name this check in ignore",
        "resctrl",
    ),
    Row("numatune/**", SAME, "the destination has those NUMA nodes", "numa"),
    Row("resource", CARRIED, DEFINITION),
    Row("resource/partition", CARRIED, "the definition; libvirt makes the cgroup"),
    Row("resource/fibrechannel/**", CARRIED, DEFINITION),
    Row("sysinfo/**", CARRIED, DEFINITION),
    Row("sysinfo/entry/@file", SAME, "the destination has the same file, by its digest", "files"),
    Row("bootloader", REFUSED, NOT_QEMU, "hypervisor"),
    Row("bootloader_args", REFUSED, NOT_QEMU, "hypervisor"),
    Row("idmap/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os", CARRIED, DEFINITION),
    Row("os/@firmware", SAME, "the destination's libvirt finds such a firmware", "firmware"),
    Row("os/type/**", SAME, "the destination's QEMU has this machine", "machine"),
    Row("os/firmware/**", SAME, "the destination's libvirt finds such a firmware", "firmware"),
    Row("os/loader", SAME, "the destination has the same firmware, by its digest", "firmware"),
    Row("os/loader/**", SAME, "the destination has the same firmware, by its digest", "firmware"),
    Row("os/nvram", CARRIED, "QEMU's migration, or with its owner and mode, held against its digest", "nvram"),
    Row("os/nvram/@type", CARRIED, DEFINITION),
    Row("os/nvram/@format", CARRIED, DEFINITION),
    Row("os/nvram/@template", CARRIED, "the definition; it is used only for a guest without variables"),
    Row("os/nvram/@templateFormat", CARRIED, DEFINITION),
    Row("os/nvram/source/**", REFUSED, "variables that are no plain file are not looked at: name this check in ignore if both hosts reach them", "nvram"),
    Row("os/nvram/source/@file", CARRIED, "QEMU's migration, or with its owner and mode, held against its digest", "nvram"),
    Row("os/nvram/source/@index", ANEW, "libvirt numbers the images of a guest that runs"),
    Row("os/nvram/source", CARRIED, DEFINITION),
    Row("os/boot/**", CARRIED, DEFINITION),
    Row("os/bootmenu/**", CARRIED, DEFINITION),
    Row("os/bios/**", CARRIED, DEFINITION),
    Row("os/smbios/**", CARRIED, DEFINITION),
    Row("os/kernel", SAME, "the destination has the same file, by its digest", "files"),
    Row("os/initrd", SAME, "the destination has the same file, by its digest", "files"),
    Row("os/dtb", SAME, "the destination has the same file, by its digest", "files"),
    Row("os/shim", SAME, "the destination has the same file, by its digest", "files"),
    Row("os/cmdline", CARRIED, DEFINITION),
    Row("os/acpi", CARRIED, DEFINITION),
    Row("os/acpi/table", SAME, "the destination has the same file, by its digest", "files"),
    Row("os/acpi/table/@type", CARRIED, DEFINITION),
    Row("os/root", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os/init", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os/initarg", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os/initdir", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os/initenv/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os/initgroup", REFUSED, NOT_QEMU, "hypervisor"),
    Row("os/inituser", REFUSED, NOT_QEMU, "hypervisor"),
    Row("features/**", CARRIED, "the definition; the destination's QEMU refuses a feature that it lacks", "definition"),
    Row("features/capabilities/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("features/privnet", REFUSED, NOT_QEMU, "hypervisor"),
    Row("features/xen/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("cpu/**", SAME, "libvirt's own comparison with the destination's processor", "cpu"),
    Row("cpu/numa/**", CARRIED, DEFINITION),
    Row("clock/**", CARRIED, DEFINITION),
    Row("on_crash", CARRIED, DEFINITION),
    Row("on_lockfailure", CARRIED, DEFINITION),
    Row("on_poweroff", CARRIED, DEFINITION),
    Row("on_reboot", CARRIED, DEFINITION),
    Row("pm/**", CARRIED, DEFINITION),
    Row("perf/**", CARRIED, DEFINITION),
    Row("throttlegroups/**", CARRIED, DEFINITION),
    Row("seclabel/**", ANEW, "the destination's libvirt makes labels of its own kind, and labels the images by them"),
    Row("seclabel/@type", CARRIED, DEFINITION),
    Row("seclabel/@model", SAME, "a static label is refused by a libvirt without that model", "definition"),
    Row("keywrap/**", CARRIED, DEFINITION),
    Row(
        "launchSecurity/**",
        REFUSED,
        "encrypted memory belongs to the processor that has the key: shut the guest down and move it offline",
        "launch_security",
        LIVE,
    ),
    Row("launchSecurity/dhCert", TOLD, "a certificate of the owner's for one processor: the guest must be launched again with that host's", "launch_security"),
    Row(
        "launchSecurity/session", TOLD, "a session blob of the owner's for one processor: the guest must be launched again with that host's", "launch_security"
    ),
)

# Parts that go past libvirt to QEMU, and parts for other hypervisors.
NAMESPACED = (
    Row(
        "qemu:commandline/**", REFUSED,
        "words of QEMU's own go past libvirt, and their meaning on the destination is not known: use libvirt's elements, or name this check in ignore "
        "if they hold there, too", "qemu_commandline",
    ),
    Row("qemu:capabilities/**", TOLD, "QEMU's capabilities are masked by hand, also on the destination", "qemu_capabilities"),
    Row("qemu:override/**", CARRIED, DEFINITION),
    Row("qemu:deprecation/**", CARRIED, DEFINITION),
    Row("xen:commandline/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("bhyve:commandline/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("lxc:namespace/**", REFUSED, NOT_QEMU, "hypervisor"),
    Row("vmware:datacenterpath", REFUSED, NOT_QEMU, "hypervisor"),
)  # fmt: skip

INVENTORY = Inventory([*MACHINE, *NAMESPACED, *DEVICES])

# The records that libvirt keeps beside a definition. The path is a name.
BESIDE = (
    Row("managed save", REFUSED, "start the guest and move it live, or drop the saved state (`virsh managedsave-remove`)", "managed_save"),
    Row(
        "snapshots",
        REFUSED,
        "libvirt keeps their definitions on one host: merge or delete them (`virsh snapshot-delete`), or name this check in ignore",
        "snapshots",
    ),
    Row("checkpoints", REFUSED, "incremental backups start over: delete them (`virsh checkpoint-delete`), or name this check in ignore", "checkpoints"),
    Row("variables of the firmware", CARRIED, "QEMU's migration, or with owner and mode, held against the digest before the source lets go", "nvram"),
    Row("state of an emulated TPM", CARRIED, "QEMU's migration, or with owner and mode, held against the digest before the source lets go", "tpm"),
    Row("autostart", CARRIED, "set on the destination after the source has let go; a note on the source outlives the module"),
    Row("transient", CARRIED, "a guest without a definition arrives without one"),
    Row("definition for the next start", CARRIED, "libvirt's migration"),
    Row("metadata", CARRIED, "the definition"),
    Row("secrets", SAME, "the destination's libvirt has a secret with that UUID or usage, and a value", "secrets"),
    Row("nwfilters", SAME, "the destination's libvirt has a filter of that name", "nwfilters"),
    Row("hooks", TOLD, "libvirt's hook on the source is not the destination's (/etc/libvirt/hooks)", "hooks"),
    Row("logs", ANEW, "QEMU's log of the guest stays on the source"),
    Row("a job under way", REFUSED, "wait until the backup, the block job or the dump has ended (`virsh domjobinfo`)", "job"),
)
