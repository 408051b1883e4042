# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One image volume of this host."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from ..._core.sizes import parse_size
from ..._core.step import Step
from .. import conversion, volume
from ..conversion_look import PlainLook
from ..conversion_memory import why_unkept
from ..converter import Converter, record_of, remove_plain
from ..podman import Podman
from ..processes import processes_of
from ..volume_actions import VolumeActions
from ..volume_noted import NotedActions
from ..volume_observer import VolumeObserver


class ImageVolume:
    """One image volume of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.runtime = Runtime(module, module.params["timeout"])
        self._want(self._wanted())

    def _want(self, wanted: volume.Wanted) -> None:
        self.wanted = wanted
        options = ("noatime", "discard") if self._discard() else ("noatime",)
        self.observer = VolumeObserver(self.runtime, Podman(self.runtime), wanted, options, self.module.params["sector_size"])
        self.actions = VolumeActions(self.observer, tuple(self.module.params["mkfs_options"]), self.module.warn)
        if self.module.params["snapshot_store"]:
            self.actions = NotedActions(self.observer, self.actions.mkfs_options, self.module.warn, self.module.params["snapshot_store"])

    # The request

    def _wanted(self) -> volume.Wanted:
        params = self.module.params
        name = params["name"]
        volume.check_name("name", name)
        podman_volume = name if params["podman_volume"] is None else params["podman_volume"]
        if podman_volume:
            volume.check_name("podman_volume", podman_volume)
        size = None
        if params["size"] is not None:
            try:
                size = parse_size(params["size"])
            except ValueError as exc:
                raise HandoverError(f"size: {exc}") from exc
            volume.check_size(size, params["fstype"])
        return volume.Wanted(
            name=name,
            state=params["state"],
            image=volume.check_path("image", params["image"] or volume.default_image(name)),
            mountpoint=volume.check_path("mountpoint", params["mountpoint"] or volume.default_mountpoint(name)),
            fstype=params["fstype"],
            size=size,
            podman_volume=podman_volume or None,
            boot=params["boot"],
            reserve=params["reserve"],
            force=params["force"],
        )

    def _discard(self) -> bool:
        discard, full = self.module.params["discard"], self.module.params["reserve"] == "full"
        if discard and full:
            raise HandoverError("discard=true would give back what reserve=full reserves: leave one of them out")
        return not full if discard is None else discard

    # From the present state to the requested one

    def run(self) -> dict[str, t.Any]:
        """Looks, decides, acts, and looks again."""
        plain = self._plain()
        before = self.observer.observe()
        if plain:
            before = self._as_converted(plain, before)
        plan = volume.decide(self.wanted, before)
        self._check_tools(plan)
        reasons = ([conversion.reason(plain)] if plain else []) + [step.reason for step in plan.steps]
        converted, after = {"summary": conversion.forecast(plain)} if plain else None, before
        if reasons and not self.module.check_mode:
            if plain:
                converted = Converter(self.actions, plain, self.module.params["keep_plain"], self.module.params["restart"]).run(plan.has("write_units"))
            else:
                for step in plan.steps:
                    getattr(self.actions, step.action)()
            after = self.observer.observe()
            self._verify(after)
        reasons += self._set_root_attributes(after, plan)
        if not plain:
            reasons += self._remove_plain()
        return dict(
            self._facts(after),
            changed=bool(reasons),
            reasons=reasons,
            conversion=converted,
            diff={"before": volume.outline(self.wanted, before), "after": volume.predict(self.wanted, before, plan)},
        )

    # A plain volume of podman's

    def _plain(self) -> conversion.Plain | None:
        """The plain volume that is to be converted, if that is asked for and there is one."""
        begun = record_of(self.wanted.image) is not None
        if not self.module.params["convert"]:
            if begun:
                name = self.wanted.podman_volume or self.wanted.name
                raise HandoverError(f"a conversion of podman's volume {name} was begun and has not ended: run it again, with convert=true")
            return None
        conversion.check_request(self.wanted)
        if self.runtime.find("podman") is None:
            return None  # refused by the plan
        look = PlainLook(self.observer.podman, t.cast(str, self.wanted.podman_volume), self.wanted.mountpoint)
        plain = look.find(begun)
        if plain:
            Pcopy(self.runtime).check_installed()
            conversion.check(plain, begun)
            conversion.check_image(self.wanted, os.path.lexists(self.wanted.image), begun)
            plain = self._with_memory(plain)
            conversion.check_memory(plain, self.module.params["restart"])
        elif self.wanted.size is None and look.is_dockers():
            raise HandoverError(f"the volume {look.name} is Docker's, and only podman's become image volumes: make one, stop the container, and copy the files")
        return plain

    def _with_memory(self, plain: conversion.Plain) -> conversion.Plain:
        """Whether its container can be dumped. A run that was cut off has found that it can."""
        user = plain.user
        if not user or not user.running or (record_of(self.wanted.image) or {}).get("memory"):
            return plain
        why = why_unkept(self.module, self.observer.podman, plain.name, user.name, next(iter(user.units), ""), user.service)
        return replace(plain, users=(replace(user, unkept=why, memory=processes_of(user.pid).memory), *plain.users[1:]))

    def _as_converted(self, plain: conversion.Plain, seen: volume.Observed) -> volume.Observed:
        """What will be there once podman's volume is bound to the image volume; refused if there is no room for it."""
        if self.wanted.size is None and seen.image is None:
            self._want(replace(self.wanted, size=conversion.size_for(plain, self.wanted.fstype)))
        if seen.image is None:
            conversion.check_room(plain, self.wanted, seen.free)
        return replace(seen, podman_volume=volume.bound_options(self.wanted.mountpoint))

    def _remove_plain(self) -> list[str]:
        """The folder of a plain volume that was converted before goes when it is not to be kept any more."""
        params, name = self.module.params, self.wanted.podman_volume
        if not params["convert"] or params["keep_plain"] or not name:
            return []
        own = next((found["Mountpoint"] for found in self.observer.podman.volumes() if found["Name"] == name), "")
        aside = conversion.aside_of(name, own) if own else ""
        if not aside or not os.path.lexists(aside):
            return []
        if not self.module.check_mode:
            remove_plain(aside)
        return [f"the folder of the plain volume is kept as {aside}"]

    def _check_tools(self, plan: volume.Plan) -> None:
        if not plan.missing_tools:
            return
        are = "are" if len(plan.missing_tools) > 1 else "is"
        sentence = f"{', '.join(plan.missing_tools)} {are} missing on this host: install the package {volume.PACKAGES[self.wanted.fstype]}"
        if not self.module.check_mode:
            raise HandoverError(sentence)
        self.module.warn(sentence)

    def _verify(self, after: volume.Observed) -> None:
        left = volume.decide(self.wanted, after).steps
        if left:
            raise HandoverError(
                f"volume {self.wanted.name} is not as asked for after the run, something else changes it at the same time: "
                + "; ".join(step.reason for step in left)
            )

    def _set_root_attributes(self, seen: volume.Observed, plan: volume.Plan) -> list[str]:
        if self.wanted.state != "mounted":
            return []
        reasons = []
        for option, apply in (
            ("owner", self.module.set_owner_if_different),
            ("group", self.module.set_group_if_different),
            ("mode", self.module.set_mode_if_different),
        ):
            value = self.module.params[option]
            # In check mode a volume that is not mounted yet cannot be asked for its root.
            if value is not None and (seen.mount is None or apply(self.wanted.mountpoint, value, False)):
                reasons.append(f"the volume's root directory has another {option} than {value}")
        return reasons

    def _facts(self, seen: volume.Observed) -> dict[str, t.Any]:
        used = None
        if seen.mount is not None:
            filesystem = os.statvfs(seen.mount.mountpoint)
            used = (filesystem.f_blocks - filesystem.f_bfree) * filesystem.f_frsize
        return {
            "name": self.wanted.name,
            "image": self.wanted.image,
            "device": seen.loops[0].name if seen.loops else None,
            "direct_io": seen.loops[0].direct_io if seen.loops else None,
            "mounted": seen.mount is not None,
            "mountpoint": seen.mount.mountpoint if seen.mount else self.wanted.mountpoint,
            "podman_volume": self.wanted.podman_volume if seen.podman_volume is not None else None,
            "fstype": seen.filesystem,
            "size": seen.image.size if seen.image else None,
            "used": used,
            "allocated": seen.image.allocated if seen.image else None,
        }


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the module."""
    try:
        return ImageVolume(module).run()
    except OSError as exc:
        raise HandoverError(f"{exc.filename or module.params['name']}: {exc.strerror or exc}") from exc


STEP = Step(
    arguments={
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "mounted", "unmounted", "absent"], "default": "present"},
        "size": {"type": "str"},
        "fstype": {"type": "str", "choices": ["ext4", "xfs"], "default": "ext4"},
        "image": {"type": "path"},
        "mountpoint": {"type": "path"},
        "podman_volume": {"type": "str"},
        "boot": {"type": "bool", "default": True},
        "owner": {"type": "str"},
        "group": {"type": "str"},
        "mode": {"type": "raw"},
        "mkfs_options": {"type": "list", "elements": "str", "default": []},
        "discard": {"type": "bool"},
        "reserve": {"type": "str", "choices": ["none", "full"], "default": "none"},
        "sector_size": {"type": "int", "choices": [512, 4096], "default": 512},
        "force": {"type": "bool", "default": False},
        "convert": {"type": "bool", "default": False},
        "keep_plain": {"type": "bool", "default": True},
        "restart": {"type": "bool", "default": False},
        "snapshot_store": {"type": "path"},
        "timeout": {"type": "int", "default": 300},
    },
    run=run,
)
