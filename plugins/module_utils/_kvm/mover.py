# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves one guest between two libvirts, through libvirt's own binding.

The connection to each side is made before anything is moved: finishing or undoing needs no new one.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import typing as t
from dataclasses import asdict, dataclass, replace

from .._core.loop import read_mounts
from .._core.runtime import HandoverError
from . import disk_plan, findings, keep, measure, migration, offline, releases
from .cache import left_behind, live_migration
from .domain_xml import Guest, parse
from .host import place_of
from .inventory import Finding
from .sides import Sides

# How often progress is looked at, in seconds.
POLL_SECONDS = 0.1
# A libvirt that was restarted is back after that; until then nothing is decided.
RECONNECT_SECONDS = 30.0


@dataclass(frozen=True)
class MovePlan:
    """The plan, and the reason for the transport of memory."""

    flags: list[str]
    parameters: dict[str, t.Any]
    why: str
    images: list[dict[str, t.Any]]
    memory: int | None  # bytes of it that travel; None of a guest that is off
    hold: bool
    postcopy: bool
    zero_pages: str
    told: list[str]
    brought: list[dict[str, str]]
    state: list[dict[str, str]]
    eject: bool
    forget: frozenset[str]  # records that libvirt keeps beside the definition, and that may be lost

    def as_dict(self) -> dict[str, t.Any]:
        return {key: value for key, value in asdict(self).items() if key not in ("hold", "postcopy", "zero_pages", "eject", "forget")}


class Mover(Sides):
    """One guest, the host that it is on, and the one that it goes to."""

    def __init__(self, libvirt: t.Any, guest: str, uri: str, destination_uri: str) -> None:
        super().__init__(libvirt, guest, uri, destination_uri)
        # Of these libvirt tells while it works, and no more when it is done.
        self._most: dict[str, int] = {}
        self._switched = False

    # --- before ---

    def plan(self, wish: migration.Wish, link_mbit: int | None, ignore: frozenset[str], looks: findings.Looks | None = None) -> MovePlan:
        """Makes every check. All that is in the way is one error."""
        looks = looks or findings.Looks()
        domain, there = self.domain("source"), self.standing("destination")
        if there in migration.ALIVE and (domain is None or there != migration.RUNNING):
            self._same_guest()
            raise HandoverError(f"an earlier migration has left {self.name} paused on the destination: finish or undo that first (kvm_migrate_state=resolved)")
        if domain is None:
            known = ", ".join(sorted(d.name() for d in self.connection("source").listAllDomains())) or "none"
            raise HandoverError(f"this host has no guest {self.name}: `virsh list --all` names those it has ({known})")
        if wish.mode == "offline":
            if domain.isActive():
                raise HandoverError(f"{self.name} runs, and kvm_migrate_mode=offline moves guests that do not: shut it down first, or choose live")
        elif not domain.isActive():
            raise HandoverError(f"{self.name} does not run: start it first, or choose kvm_migrate_mode=offline")
        elif self.standing("source") == migration.PAUSED:
            raise HandoverError(f"{self.name} stands still, and nobody has paused it: see why (`virsh domstate --reason`), and resume or reset it first")
        elif self.standing("source") == migration.HALTED:
            raise HandoverError(f"{self.name} is paused, and would be let run where it arrives: resume it first (`virsh resume`), or shut it down")
        self._same_guest()
        if there == migration.RUNNING:
            raise HandoverError(f"{self.name} runs on the destination too: stop one of them by hand, after looking which has the newer data")

        guest = parse(domain.XMLDesc(self.libvirt.VIR_DOMAIN_XML_MIGRATABLE if domain.isActive() else 0))
        idle = measure.idle_processors()
        choice = migration.Choice(wish.compression, wish.connections or 1, "as asked for")
        if wish.compression == "auto":
            choice = migration.choose(link_mbit or measure.link_speed(self._destination_address()), idle)
        # QEMU switches to fetching pages over a single plain stream.
        if wish.compression == "auto" and wish.mode == "postcopy":
            choice = migration.Choice("none", 1, "pages that are fetched after the switch are not packed")
        unpacked = releases.packs(self.connection("source"), self.connection("destination")) if choice.compression in migration.PARALLEL_METHODS else None
        if unpacked and wish.compression != "auto":
            raise HandoverError(f"{unpacked}: choose kvm_migrate_compression=none, or xbzrle, which works on one connection")
        if unpacked:
            choice = migration.Choice("none", choice.connections, unpacked)
        wish = migration.Wish(**{**asdict(wish), "compression": choice.compression, "connections": wish.connections or choice.connections})
        refused = migration.refusal(wish)
        if refused:
            raise HandoverError(refused)

        misspelt = findings.unknown(ignore)
        if misspelt:
            raise HandoverError(misspelt)
        examined = findings.examine(self.libvirt, self.connection("source"), self.connection("destination"), domain, wish.mode, looks)
        problems = [Finding(check, problem) for check, problem in self._problems(domain, guest, wish)]
        disks = disk_plan.move(self.name, wish, looks.here, looks.there)
        told = findings.check([*examined.findings, *problems, *disk_plan.findings(disks, guest)], self.name, ignore)
        made = migration.plan(wish)
        made.parameters.update(disk_plan.parameters(disks, wish))
        if wish.tls:
            # The certificate is for its name, on any address for the memory.
            made.parameters["tls.destination"] = self.connection("destination").getHostname()
        unknown = [flag for flag in made.flags if not hasattr(self.libvirt, flag)]
        if unknown:
            raise HandoverError(f"this host's libvirt does not know {unknown[0]}: install a newer python3-libvirt, or do without")
        if wish.zero_pages != "default":
            self._who_looks_for_zero_pages(domain)
        # The images' backing files do not travel.
        images = disk_plan.images(disks, self._images(domain, parse(domain.XMLDesc(0)), wish))
        eject = looks.cdrom == "eject"
        return MovePlan(
            made.flags, made.parameters, choice.reason, images, guest.memory if domain.isActive() else None,
            wish.hold, wish.mode == "postcopy", wish.zero_pages, told, examined.brought, examined.state, eject, ignore & {"snapshots", "checkpoints"},
        )  # fmt: skip

    def _problems(self, domain: t.Any, guest: Guest, wish: migration.Wish) -> t.Iterator[tuple[str, str]]:
        """The obstacles: the check's name, and a sentence."""
        there = self.connection("destination")
        if domain.isActive():
            free = there.getFreeMemory()
            if 0 < free < guest.memory:
                # Page cache counts as used there, and is given back when it is asked for.
                stats = there.getMemoryStats(self.libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
                free += 1024 * (stats.get("cached", 0) + stats.get("buffers", 0))
                if free < guest.memory:
                    yield "memory", f"{self.name} needs {guest.memory >> 20} MiB, and the destination has {free >> 20} MiB free: make room there"
        pools = {pool.name(): pool.isActive() for pool in there.listAllStoragePools()} if guest.pools else {}
        for pool in guest.pools:
            if not pools.get(pool):
                state = "is not active" if pool in pools else "does not exist"
                yield "pools", f"the storage pool {pool} of {self.name} {state} on the destination: define and start it there"
        if wish.storage == "shared":
            mounts, version = read_mounts(), self.connection("source").getVersion()
            qemu = (version // 1_000_000, version // 1000 % 1000, version % 1000)
            for disk in guest.disks:
                local = disk.source is not None and disk.kind in ("file", "block")
                place = place_of(t.cast(str, disk.source), mounts) if local else place_of("", mounts)
                verdict = live_migration(disk, place, qemu)
                reason = verdict.reason if verdict.verdict == "no" else left_behind(disk, place)
                if reason:
                    yield "storage", f"{self.name} cannot be migrated with its disk {disk.target} as it is: {reason}"

    def beside(self) -> list[dict[str, str]]:
        """Files beside the disks of a guest that has moved."""
        domain = self.domain("destination")
        return findings.beside(domain)

    def arrived(self, wish: migration.Wish) -> list[dict[str, t.Any]]:
        """The images of a guest that has moved."""
        domain = self.domain("destination")
        return self._images(domain, parse(domain.XMLDesc(0)), wish)

    def _images(self, domain: t.Any, guest: Guest, wish: migration.Wish) -> list[dict[str, t.Any]]:
        if wish.storage == "shared":
            return []
        asked = set(wish.disks)
        unknown = sorted(asked - {disk.target for disk in guest.disks})
        if unknown:
            raise HandoverError(f"{self.name} has no disk {unknown[0]}: it has {', '.join(disk.target for disk in guest.disks)}")
        whole = [disk.target for disk in guest.disks if disk.backing and (not asked or disk.target in asked)]
        if wish.mode == "offline" and wish.storage == "copy" and whole:
            raise HandoverError(f"{whole[0]} of {self.name} stands on another image: choose kvm_migrate_storage=incremental, if the destination has that one")
        return [
            {
                "target": disk.target, "path": disk.source, "format": disk.format, "size": domain.blockInfo(disk.target)[0],
                "backing": list(disk.backing), "backing_format": disk.backing_format,
            }  # fmt: skip
            for disk in guest.disks
            if disk.source is not None and not disk.read_only and disk.kind == "file" and (not asked or disk.target in asked)
        ]

    def _destination_address(self) -> str:
        found = re.match(r"[^:]+://(?:[^@/]*@)?(\[[^\]]+\]|[^:/?]+)", self.uris["destination"])
        return found.group(1).strip("[]") if found else ""

    # --- the move ---

    def migrate(self, plan: MovePlan, max_downtime_ms: int, postcopy_after: int, timeout: float) -> dict[str, t.Any]:
        """Migrates, lets the guest run, and returns the measurements. A guest that stayed is an error that says so."""
        domain = self.domain("source")
        kept = keep.of(domain)
        keep.note(domain.UUIDString(), kept)
        if plan.eject:
            keep.note(domain.UUIDString(), replace(kept, media=tuple(findings.eject(self.libvirt, domain))))
        flags = 0
        for flag in keep.flags(plan.flags, kept):
            flags |= getattr(self.libvirt, flag)
        failure: list[Exception] = []
        looked_before = self._look_for_zero_pages(domain, plan.zero_pages)

        def perform() -> None:
            try:
                if "VIR_MIGRATE_OFFLINE" in plan.flags:
                    offline.move(self.libvirt, domain, self.connection("destination"), plan.forget)
                else:
                    domain.migrateToURI3(self.uris["destination"], plan.parameters, flags)
            except (self.libvirt.libvirtError, HandoverError) as exc:
                failure.append(exc)

        began = time.monotonic()
        worker = threading.Thread(target=perform, daemon=True)
        worker.start()
        given_up = self._watch(worker, domain, plan, max_downtime_ms, postcopy_after, began + timeout)
        ended = time.monotonic()
        reason = f"it had not ended within {timeout:.0f} s" if given_up else "; ".join(map(str, failure))
        decision = self._settle()
        let_run = time.monotonic()
        if not decision.moved:
            with contextlib.suppress(self.libvirt.libvirtError, HandoverError):
                self._look_for_zero_pages(domain, looked_before)
            said = decision.sentence[0].upper() + decision.sentence[1:]
            if "VIR_MIGRATE_OFFLINE" not in plan.flags and self.standing("source") not in migration.ALIVE:
                said += f"; {migration.ENDED}"
            raise HandoverError(f"{self.name} was not migrated: {reason or decision.sentence}. {said}")
        stats = self._statistics()
        made = migration.Plan(plan.flags, plan.parameters)
        result: dict[str, t.Any] = {
            "moved": True,
            "outcome": decision.sentence,
            "figures": migration.figures(stats),
            "effects": migration.effects(made, stats, self._switched),
        }
        if plan.hold:
            result["held_ms"] = round((let_run - ended) * 1000, 1)
        return result

    def _look_for_zero_pages(self, domain: t.Any, who: str) -> str:
        """Has QEMU do so as asked for, and says how it did before. libvirt has no word for it, and leaves it as it finds it."""
        if who == "default":
            return who
        before = self._who_looks_for_zero_pages(domain)
        if before != who:
            self._monitor(domain, "migrate-set-parameters", **{"zero-page-detection": who})
        return before

    def _who_looks_for_zero_pages(self, domain: t.Any) -> str:
        who = self._monitor(domain, "query-migrate-parameters").get("zero-page-detection")
        if who is None:
            raise HandoverError(f"QEMU of {self.name} is not told who looks for zero pages, as 9.0 and later are: leave kvm_migrate_zero_pages out")
        return str(who)

    def _monitor(self, domain: t.Any, command: str, **arguments: str) -> t.Any:
        """QEMU's own answer. libvirt notes the question in its log."""
        import libvirt_qemu

        asked = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            answer = json.loads(libvirt_qemu.qemuMonitorCommand(domain, json.dumps(asked), 0))
        except self.libvirt.libvirtError as exc:
            raise HandoverError(f"QEMU of {self.name} could not be asked {command}: {exc}: try again, or leave kvm_migrate_zero_pages out") from exc
        if "error" in answer:
            raise HandoverError(f"QEMU of {self.name} refused {command}: {answer['error'].get('desc')}: leave kvm_migrate_zero_pages out")
        return answer["return"]

    def _watch(self, worker: threading.Thread, domain: t.Any, plan: MovePlan, max_downtime_ms: int, postcopy_after: int, deadline: float) -> bool:
        """Until the migration has ended. Says whether it was given up for its time."""
        set_downtime, given_up = max_downtime_ms > 0, False
        # A question goes through QEMU's monitor, and its cost is the migration's: where no answer is needed, none is asked.
        asks = set_downtime or bool(plan.images) or not {"VIR_MIGRATE_POSTCOPY", "VIR_MIGRATE_AUTO_CONVERGE"}.isdisjoint(plan.flags)
        while worker.is_alive():
            worker.join(POLL_SECONDS if asks else max(POLL_SECONDS, deadline - time.monotonic()))
            with contextlib.suppress(self.libvirt.libvirtError):
                if time.monotonic() > deadline and not given_up:
                    domain.abortJob()
                    given_up = True
                if not asks or not worker.is_alive():
                    continue
                stats = domain.jobStats()
                self._note(stats)
                if set_downtime:
                    domain.migrateSetMaxDowntime(max_downtime_ms)
                    set_downtime = False
                if plan.postcopy and not self._switched and stats.get("memory_iteration", 0) > postcopy_after:
                    domain.migrateStartPostCopy()
                    self._switched = True
        return given_up

    def _note(self, stats: t.Mapping[str, t.Any]) -> None:
        for name in ("disk_total", "disk_processed", "auto_converge_throttle"):
            self._most[name] = max(self._most.get(name, 0), stats.get(name, 0))

    def _same_guest(self) -> None:
        """Another guest that has the same name by chance is no leftover."""
        found = {side: domain.UUIDString() for side, domain in ((side, self.domain(side)) for side in self.uris) if domain is not None}
        if len(set(found.values())) > 1:
            raise HandoverError(
                f"the destination has another guest {self.name}, with the UUID {found['destination']} and not {found['source']}: rename one of them"
            )

    def _decision(self) -> migration.Decision:
        source = self.standing("source")
        # A source without the guest has nothing left to do about it; and while the guest stands still, a question less counts.
        busy = source not in (migration.ABSENT, migration.SILENT) and self.migrating()
        return migration.decide(source, self.standing("destination"), busy)

    def _settle(self, patience: float = RECONNECT_SECONDS) -> migration.Decision:
        """Asks both sides until they say enough, and takes the next steps. `patience`, in seconds, is for a libvirt still at work."""
        began = time.monotonic()
        while True:
            decision = self._decision()
            limit = {"wait": patience, "ask": RECONNECT_SECONDS}.get(decision.act, 0.0)
            if time.monotonic() - began >= limit:
                break
            time.sleep(POLL_SECONDS)
        self._act(decision)
        try:
            keep.settle(self.libvirt, self.domain("source"), self.domain("destination"), decision.moved)
        except self.libvirt.libvirtError as exc:
            raise HandoverError(f"{self.name}: {decision.sentence}; but it could not be made as it was (autostart, drives): {exc}: run this again") from exc
        return decision

    def _act(self, decision: migration.Decision) -> None:
        if decision.act in ("ask", "wait"):
            raise HandoverError(
                f"{self.name}: {decision.sentence}. When both sides answer, run this again with kvm_migrate_state=resolved: it finishes or undoes the migration"
            )
        try:
            if decision.act == "resume_destination":
                self.domain("destination").resume()
            elif decision.act == "resume_source":
                self.domain("source").resume()
            elif decision.act == "destroy_destination":
                self._same_guest()
                self._discard(self.domain("destination"))
        except self.libvirt.libvirtError as exc:
            # It may have been done in between: a guest that stands where it should is no error.
            now = self._decision()
            if now.act != "none" or now.moved != decision.moved:
                raise HandoverError(f"{self.name}: {decision.sentence}; but {decision.act.replace('_', ' on the ')} failed: {exc}") from exc

    def _discard(self, domain: t.Any) -> None:
        """Removes the guest that arrived and was never let run."""
        if domain.isPersistent():
            domain.undefineFlags(self.libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | self.libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
        domain.destroy()

    def resolve(self, patience: float, check_mode: bool) -> dict[str, t.Any]:
        """The work of state=resolved."""
        decision = self._decision() if check_mode else self._settle(patience)
        return {"changed": decision.act.startswith(("resume", "destroy")), "moved": decision.moved, "outcome": decision.sentence}

    def cancel(self, patience: float, check_mode: bool) -> dict[str, t.Any]:
        """The work of state=cancelled. The run that asked for the migration hears of it, and settles it as well, with the same result."""
        if not self.migrating():
            decision = self._decision()
            return {"changed": False, "moved": decision.moved, "outcome": f"no migration is under way: {decision.sentence}"}
        if check_mode:
            return {"changed": True, "moved": False, "outcome": "a migration is under way, and would be given up"}
        try:
            self.domain("source").abortJob()
        except self.libvirt.libvirtError as exc:
            raise HandoverError(f"the migration of {self.name} could not be given up: {exc}") from exc
        decision = self._settle(patience)
        return {"changed": not decision.moved, "moved": decision.moved, "outcome": decision.sentence}

    def _statistics(self) -> dict[str, t.Any]:
        """The destination knows how long the guest stood still."""
        try:
            stats = self.domain("destination").jobStats(self.libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
        except self.libvirt.libvirtError:
            stats = {}
        return {**stats, **self._most}
