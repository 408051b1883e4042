# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One image volume of this host, which a plain volume of podman's may become."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError
from ..._core.step import Step
from .. import conversion, volume
from ..conversion_look import PlainLook, record_of
from ..processes import processes_of
from ..steps import image_volume
from .conversion_memory import why_unkept
from .converter import Converter, remove_plain


class ConvertedVolume(image_volume.ImageVolume):
    """The image volume, and the plain one that is to become it."""

    def run(self) -> dict[str, t.Any]:
        """As of one that is not converted, and what the conversion did; none if there was nothing to convert."""
        if not self.module.params["convert"]:
            return dict(super().run(), conversion=None)
        plain = self._plain()
        before = self.observer.observe()
        if plain is None:
            return self._reached_before(before)
        told = {"summary": conversion.forecast(plain)}

        def act(plan: volume.Plan) -> None:
            told.update(Converter(self.actions, plain, self.module.params["keep_plain"], self.module.params["restart"]).run(plan.has("write_units")))

        return dict(self.reach(self._as_converted(plain, before), act, [conversion.reason(plain)]), conversion=told)

    def _reached_before(self, before: volume.Observed) -> dict[str, t.Any]:
        """It is an image volume: the folder that an earlier run has kept may go."""
        done = self.reach(before, self.act)
        reasons = [*done["reasons"], *self._remove_plain()]
        return dict(done, reasons=reasons, changed=bool(reasons), conversion=None)

    def _plain(self) -> conversion.Plain | None:
        """The plain volume that is to be converted, if there is one."""
        begun = record_of(self.wanted.image) is not None
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
            self.want(replace(self.wanted, size=conversion.size_for(plain, self.wanted.fstype)))
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


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the module."""
    return image_volume.result_of(ConvertedVolume, module)


STEP = Step(
    arguments={
        **image_volume.STEP.arguments,
        "convert": {"type": "bool", "default": False},
        "keep_plain": {"type": "bool", "default": True},
        "restart": {"type": "bool", "default": False},
    },
    run=run,
)
