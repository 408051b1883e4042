# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: one booted Debian host under systemd-nspawn."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nspawn_host
short_description: Start, stop and remove one booted host of the lab
description:
  - Boots a Debian host from an overlay over a shared, read-only base image, under systemd-nspawn,
    on a bridge, in cgroups of its own. Nothing supervises it and nothing needs to, neither systemd nor machined
    on this machine; whether it runs is read from the process table.
  - One host of a lab at a time; another run waits.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  name:
    description: The host's name; also its machine name, so at most 12 characters.
    type: str
    required: true
  state:
    description:
      - V(started) boots the host if it does not run, after clearing away what a killed one left.
        Returns when its own process 1 runs, which is before it has booted.
      - V(stopped) shuts it down and keeps its disk.
      - V(absent) shuts it down and removes everything of it.
    type: str
    choices: [started, stopped, absent]
    default: started
  state_dir:
    description: The lab's state folder; the host's own is C(hosts/<name>) in it.
    type: path
    required: true
  base:
    description: The unpacked base image. Needed for V(started).
    type: path
  bridge:
    description: The bridge that the host's C(host0) is connected to. Needed for V(started).
    type: str
  devices:
    description: Device nodes of this machine that the host sees too, C(NODE) or C(NODE:SEEN AS). Those that do not exist are left out.
    type: list
    elements: path
    default: []
  read_only:
    description: Folders of this machine that the host may read, by the path inside the host.
    type: dict
    default: {}
  read_write:
    description: Folders of this machine that the host may write to, and with it every other host that is told so, by the path inside the host.
    type: dict
    default: {}
  stop_timeout:
    description: Seconds that a clean shutdown may take. What still runs then is killed.
    type: int
    default: 15
  power_cut:
    description: Kill the host at once instead of shutting it down.
    type: bool
    default: false
"""

RETURN = r"""
reason:
  description: Why something was changed.
  type: str
  returned: changed
  sample: node1 did not run
pid:
  description: The host's process 1, as this machine numbers it.
  type: int
  returned: when the host runs
  sample: 48211
thawed:
  description: Mount points of file systems that were thawed so that the host could stop.
  type: list
  returned: when the host was stopped
  sample: [/var/lib/handover/mnt/shop]
killed:
  description: How many processes had to be killed.
  type: int
  returned: when the host was stopped
  sample: 0
"""

EXAMPLES = r"""
- name: Boot the host
  nspawn_host:
    name: node1
    state_dir: /var/lib/handover-lab
    base: /var/cache/handover-lab/trixie-0f3a9c/root
    bridge: handover0
"""

import os
import shutil
import signal
import subprocess
import uuid

from ansible.module_utils import lab_machine
from ansible.module_utils.basic import AnsibleModule

SETUP_TIMEOUT = 20
KILL_TIMEOUT = 10
# Starts systemd-nspawn, in cgroups of its own, again each time that the host reboots: as a service it would say so with this status
# and leave it to systemd. $1 are the cgroups, $2 the paths it needs, with a colon after each, the rest is the command.
# What others have mounted on loop devices is not its business: nspawn takes copies of all mounts with it, below the host's root, where
# no mountinfo shows them, and where the machine's mounts are private the copies hold the devices until the host stops.
KEEPER = r"""
cgroups=$1
needed=$2
shift 2
printf '%s\n' "$(cat /proc/self/mounts)" | while read -r device mountpoint rest; do
    mountpoint=$(printf %b "$mountpoint")
    case $device in /dev/loop*) ;; *) continue ;; esac
    case ":$needed" in *":${mountpoint%/}/"*) continue ;; esac
    umount --lazy "$mountpoint"
done
while
    (for cgroup in $cgroups; do sh -c 'echo $PPID' > "$cgroup/cgroup.procs"; done; exec "$@")
    status=$?
    [ $status = 133 ]
do
    :
done
exit $status
"""
UNSHARE = ("unshare", "--mount", "--propagation=slave")


class HostError(Exception):
    """What went wrong with the host, in one sentence."""


class Host:
    """One host, and the three states it can be brought to."""

    def __init__(self, params: dict, check_mode: bool) -> None:
        self.name = params["name"]
        self.params = params
        self.check_mode = check_mode
        self.state_dir = params["state_dir"]
        self.folder = os.path.join(self.state_dir, "hosts", self.name)
        self.root = os.path.join(self.folder, "root")
        self.console = os.path.join(self.folder, "console.log")
        self.result: dict = {"changed": False}

    def reach(self, state: str) -> dict:
        """Brings the host to a state and tells what it took."""
        act = {"started": self._start, "stopped": self._stop, "absent": self._remove}[state]
        # Two hosts that start in the same instant collide on cgroups, also when
        # two runs start them.
        with lab_machine.exclusive(self.state_dir):
            act()
        return self.result

    def _start(self) -> None:
        nspawn = self._nspawn()
        pid = lab_machine.first_process(nspawn) if nspawn else None
        if pid:
            self.result["pid"] = pid
            if self._command() != self._running_command(nspawn) or self._base_differs():
                self.result["warnings"] = [
                    f"{self.name} runs with other settings than those asked for; they count from its next start"
                ]
            return
        self._changed(f"{self.name} did not run")
        if self.check_mode:
            return
        self._clear()
        self._mount()
        self.result["pid"] = self._boot()

    def _stop(self) -> None:
        if not self._leftovers():
            return
        self._changed(f"{self.name} ran, or had left something behind")
        if not self.check_mode:
            self._clear()

    def _remove(self) -> None:
        if not self._leftovers() and not os.path.exists(self.folder):
            return
        self._changed(f"{self.name} was there")
        if self.check_mode:
            return
        self._clear()
        if os.path.exists(self.folder):
            self._remove_folder()

    def _remove_folder(self) -> None:
        try:
            shutil.rmtree(self.folder)
        except PermissionError:
            # A file that a test made immutable, or that may only grow, is root's to remove once its flags are lifted.
            subprocess.run(["chattr", "-R", "-f", "-i", "-a", self.folder], capture_output=True, check=False)
            shutil.rmtree(self.folder)

    def _changed(self, reason: str) -> None:
        self.result.update(changed=True, reason=reason)

    def _nspawn(self) -> int | None:
        return lab_machine.running_hosts(self.state_dir).get(self.name)

    def _leftovers(self) -> bool:
        return bool(
            self._nspawn()
            or lab_machine.cgroups(self.state_dir, self.name)
            or lab_machine.mounts_below(self.folder)
            or lab_machine.loops(self.folder)
        )

    def _disk(self) -> str:
        """The host's own layer. It fits one base image only, so it bears that one's name."""
        return os.path.join(self.folder, "disk-" + os.path.basename(os.path.dirname(self.params["base"])))

    def _mount(self) -> None:
        upper, work = (os.path.join(self._disk(), part) for part in ("upper", "work"))
        for path in (self.root, upper, work, *(os.path.join(self.folder, f) for f in lab_machine.HOST_FOLDERS)):
            os.makedirs(path, exist_ok=True)
        options = f"lowerdir={self.params['base']},upperdir={upper},workdir={work}"
        done = subprocess.run(
            ["mount", "-t", "overlay", "-o", options, "handover-lab", self.root],
            capture_output=True, text=True, check=False,
        )
        if done.returncode:
            raise HostError(
                f"{self.root}: the overlay over {self.params['base']} cannot be mounted ({done.stderr.strip()}): "
                "set lab_state to a folder on ext4, xfs or btrfs"
            )

    def _base_differs(self) -> bool:
        return lab_machine.lower_layer(self.root) != self.params["base"]

    def _command(self) -> list[str]:
        binds = [f"{self.folder}/{folder}:{inside}" for folder, inside in lab_machine.HOST_FOLDERS.items()]
        binds += [f"{outside}:{inside}" for inside, outside in sorted(self.params["read_write"].items())]
        binds += [device for device in self.params["devices"] if os.path.exists(device.partition(":")[0])]
        read_only = {**self.params["read_only"], "/etc/handover-lab/fleet": f"{self.state_dir}/fleet",
                     "/etc/handover-lab/host": f"{self.folder}/seed"}
        return [
            "systemd-nspawn", "--boot", "--quiet",
            f"--directory={self.root}", f"--machine={self.name}",
            # The journal and the container's id follow the name: a host that
            # starts again is the same host.
            f"--uuid={uuid.uuid5(uuid.NAMESPACE_DNS, self.name + '.handover-lab').hex}",
            "--register=no", "--keep-unit", "--settings=no", "--link-journal=no",
            "--resolv-conf=off", "--timezone=off", "--console=read-only",
            f"--network-bridge={self.params['bridge']}",
            "--capability=all",
            *(f"--bind={bind}" for bind in binds),
            *(f"--bind-ro={outside}:{inside}" for inside, outside in sorted(read_only.items())),
        ]

    def _needed(self) -> str:
        paths = [self.state_dir, self.params["base"], *self.params["devices"], *self.params["read_only"].values(), *self.params["read_write"].values()]
        return "".join(f"{path}/:" for path in paths)

    def _running_command(self, nspawn: int) -> list[str]:
        return dict(lab_machine.processes()).get(nspawn, [])

    def _boot(self) -> int:
        own = []
        for tree in lab_machine.cgroup_trees():
            own.append(os.path.join(tree, lab_machine.cgroup_name(self.state_dir, self.name)))
            os.makedirs(own[-1], exist_ok=True)

        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            # cgroup v2 alone inside, whatever the machine has.
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
            # /proc/sys writable inside: CRIU restores a container's host name there.
            "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1",
            # No filter of system calls around the host: runc needs bpf and keyctl, and
            # from within a filter CRIU cannot lift those of the containers it dumps.
            "SYSTEMD_SECCOMP": "0",
        }
        with open(self.console, "wb") as console:
            keeper = subprocess.Popen(
                [*UNSHARE, "/bin/sh", "-c", KEEPER, "handover-lab", " ".join(own), self._needed(), *self._command()],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True, env=environment, cwd="/",
            )

        def running() -> int | None:
            nspawn = self._nspawn()
            return lab_machine.first_process(nspawn) if nspawn else None

        if not lab_machine.wait_until(lambda: keeper.poll() is not None or running(), SETUP_TIMEOUT):
            self._clear()
            raise HostError(f"{self.name}: systemd-nspawn set nothing up within {SETUP_TIMEOUT} s: see {self.console}")
        if keeper.poll() is not None:
            with open(self.console, encoding="utf-8", errors="replace") as console:
                said = " ".join(console.read().split()[-40:])
            self._clear()
            raise HostError(f"{self.name}: systemd-nspawn ended with status {keeper.returncode}: {said}")
        return running()

    def _clear(self) -> None:
        """Ends the host, whatever state it is in, and takes away all it held but its disk."""
        # A file that was unlinked is known by its name, and that is whole only while the host lives.
        known = lab_machine.loops(self.folder, alive=True)
        self._end_processes()
        # A connection shared in the background would hold on to a host that is gone.
        lab_machine.close_ssh(f"{self.state_dir}/ssh/{self.name}")
        for path in lab_machine.cgroups(self.state_dir, self.name):
            if not lab_machine.wait_until(lambda path=path: self._try_remove(path), KILL_TIMEOUT):
                raise HostError(f"{self.name}: the cgroup {path} cannot be removed: look for processes in it")
        # Before the overlay goes: a file in it is found through it.
        self._detach_loops(known)
        lab_machine.remove_lock(self.root)
        lab_machine.unmount(self.folder)
        for kind in ("propagate", "unix-export"):
            path = os.path.join("/run/systemd/nspawn", kind, self.name)
            lab_machine.unmount(path)
            if os.path.isdir(path):
                shutil.rmtree(path)

    def _end_processes(self) -> None:
        members = self._members()
        if not members:
            return
        self.result["thawed"] = []
        nspawn = self._nspawn()
        first = lab_machine.first_process(nspawn) if nspawn else None
        if first and not self.params["power_cut"]:
            with lab_machine.LoopMounts(members) as mounts:
                self.result["thawed"] += mounts.thaw()
            # systemd's own signal for a clean power-off.
            lab_machine.signal_all({first}, signal.SIGRTMIN + 4)
            lab_machine.wait_until(lambda: not self._members(), self.params["stop_timeout"])
        members = self._members()
        self.result["killed"] = len(members)
        with lab_machine.LoopMounts(members) as mounts:
            self._kill(mounts)

    def _kill(self, mounts: lab_machine.LoopMounts) -> None:
        def kill_rest() -> bool:
            # SIGKILL reaches frozen cgroups too; what a new process slipped past is caught the next time round. It comes before the thaw: what
            # waits for a frozen file system then writes nothing any more.
            rest = self._members()
            lab_machine.signal_all(rest, signal.SIGKILL)
            self.result["thawed"] += mounts.thaw()
            return not rest

        if not lab_machine.wait_until(kill_rest, KILL_TIMEOUT):
            raise HostError(
                f"{self.name}: processes {sorted(self._members())} survive SIGKILL: they wait for a device or a "
                "file system, see their /proc/<id>/stack"
            )

    def _members(self) -> set[int]:
        members = {pid for path in lab_machine.cgroups(self.state_dir, self.name)
                   for pid in lab_machine.cgroup_members(path)}
        nspawn = self._nspawn()
        return {pid for pid in members | ({nspawn} if nspawn else set()) if lab_machine.alive(pid)}

    @staticmethod
    def _try_remove(path: str) -> bool:
        try:
            lab_machine.remove_cgroup(path)
        except OSError:
            return False
        return True

    def _detach_loops(self, known: list[lab_machine.Loop]) -> None:
        ours = {loop.identity for loop in [*known, *lab_machine.loops(self.folder)]}

        def rest() -> list[lab_machine.Loop]:
            # An unlinked file whose name is whole still is one of another host, which lives.
            bound = lab_machine.bound_loops()
            return [loop for loop in bound if loop.identity in ours and not (loop.unlinked and loop.is_in_a_host)]

        def detach_rest() -> bool:
            for loop in rest():
                try:
                    lab_machine.detach(loop)
                except OSError:
                    continue
            return not rest()

        if not lab_machine.wait_until(detach_rest, KILL_TIMEOUT):
            left = ", ".join(f"{loop.device} ({loop.backing})" for loop in rest())
            raise HostError(f"{self.name}: still in use on this machine: {left}: unmount it")


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
            "state_dir": {"type": "path", "required": True},
            "base": {"type": "path"},
            "bridge": {"type": "str"},
            "devices": {"type": "list", "elements": "path", "default": []},
            "read_only": {"type": "dict", "default": {}},
            "read_write": {"type": "dict", "default": {}},
            "stop_timeout": {"type": "int", "default": 15},
            "power_cut": {"type": "bool", "default": False},
        },
        required_if=[("state", "started", ("base", "bridge"))],
        supports_check_mode=True,
    )
    try:
        result = Host(module.params, module.check_mode).reach(module.params["state"])
    except (HostError, OSError) as error:
        module.fail_json(msg=str(error))
    for warning in result.pop("warnings", []):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
