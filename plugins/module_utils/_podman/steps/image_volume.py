# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One image volume of this host. The module converts plain volumes, too, which takes what stands above the steps."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.runtime import HandoverError, Runtime
from ..._core.sizes import parse_size
from ..._core.step import Step
from .. import volume
from ..conversion_look import record_of
from ..podman import Podman
from ..volume_actions import VolumeActions
from ..volume_noted import NotedActions
from ..volume_observer import VolumeObserver


class ImageVolume:
    """One image volume of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.runtime = Runtime(module, module.params["timeout"])
        self.want(self._wanted())

    def want(self, wanted: volume.Wanted) -> None:
        """The volume that is asked for is this one."""
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
        if record_of(self.wanted.image) is not None:
            name = self.wanted.podman_volume or self.wanted.name
            raise HandoverError(f"a conversion of podman's volume {name} was begun and has not ended: run it again, with convert=true")
        return self.reach(self.observer.observe(), self.act)

    def reach(self, before: volume.Observed, act: t.Callable[[volume.Plan], None], reasons: t.Sequence[str] = ()) -> dict[str, t.Any]:
        """The result, when `act` has done the steps that are left from `before` on, and all that the `reasons` before those are for."""
        plan = volume.decide(self.wanted, before)
        self._check_tools(plan)
        reasons, after = [*reasons, *(step.reason for step in plan.steps)], before
        if reasons and not self.module.check_mode:
            act(plan)
            after = self.observer.observe()
            self._verify(after)
        reasons += self._set_root_attributes(after, plan)
        return dict(
            self._facts(after),
            changed=bool(reasons),
            reasons=reasons,
            diff={"before": volume.outline(self.wanted, before), "after": volume.predict(self.wanted, before, plan)},
        )

    def act(self, plan: volume.Plan) -> None:
        """Does the steps."""
        for step in plan.steps:
            getattr(self.actions, step.action)()

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


def result_of(kind: type[ImageVolume], module: AnsibleModule) -> dict[str, t.Any]:
    """What the volume, of this kind, has to tell."""
    try:
        return kind(module).run()
    except OSError as exc:
        raise HandoverError(f"{exc.filename or module.params['name']}: {exc.strerror or exc}") from exc


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the step."""
    return result_of(ImageVolume, module)


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
        "snapshot_store": {"type": "path"},
        "timeout": {"type": "int", "default": 300},
    },
    run=run,
)
