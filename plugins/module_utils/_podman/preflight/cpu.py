# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Architecture and processor of both hosts."""

from __future__ import annotations

import typing as t

from .plan import Check, Plan


def _architecture(plan: Plan) -> t.Iterator[str]:
    here, there = plan.here["host"]["arch"], plan.there["host"]["arch"]
    if here != there:
        yield "{0} is a {1} host and {2} is {3}: choose a destination of the same architecture".format(plan.source, here, plan.destination, there)


# Entries that the kernel prints among a processor's features and a program cannot use: power, virtualisation, and what is done about the
# processor's own mistakes. It differs between hosts that are the same to every program.
KERNELS_OWN = frozenset(
    (
        "acpi", "amd_lbr_v2", "amd_ppin", "aperfmperf", "apic", "arat", "arch_capabilities", "arch_lbr", "arch_perfmon", "avic", "bmec", "bpext", "bts",
        "bus_lock_detect", "cat_l2", "cat_l3", "cdp_l2", "cdp_l3", "constant_tsc", "core_capabilities", "cppc", "cpb", "cpuid", "cpuid_fault", "cqm",
        "cqm_llc", "cqm_mbm_local", "cqm_mbm_total", "cqm_occup_llc", "dca", "debug_swap", "decodeassists", "de", "ds_cpl", "dtes64", "dtherm", "dts",
        "epb", "ept", "ept_ad", "est", "extapic", "extd_apicid", "flexpriority", "flush_l1d", "flushbyasid", "hfi", "ht", "hw_pstate", "hwp",
        "hwp_act_window", "hwp_epp", "hwp_notify", "hwp_pkg_req", "hypervisor", "ibpb", "ibpb_brtype", "ibrs", "ibrs_enhanced", "ibs", "ida",
        "intel_pt", "intel_ppin", "invpcid", "invpcid_single", "irperf", "la57", "lbrv", "lbr_v2", "mba", "mca", "mce", "md_clear", "monitor", "msr",
        "mtrr", "mwaitx", "nonstop_tsc", "npt", "nrip_save", "nx", "osvw", "overflow_recov", "pae", "pat", "pausefilter", "pbe", "pcid", "pconfig", "pdcm",
        "pdpe1gb", "pebs", "perfctr_core", "perfctr_llc", "perfctr_nb", "perfmon_v2", "pfthreshold", "pge", "pln", "proc_feedback", "pse", "pse36",
        "pti", "pts", "rapl", "rdt_a", "rep_good", "rsb_ctxsw", "sdbg", "sev", "sev_es", "sev_snp", "skinit", "sme", "smap", "smca", "smep", "smx",
        "spec_ctrl", "split_lock_detect", "srbds_ctrl", "ss", "ssbd", "ssbs", "stibp", "stibp_always_on", "succor", "svm", "svm_lock", "tm", "tm2", "tme",
        "topoext", "tpr_shadow", "tsc_adjust", "tsc_deadline_timer", "tsc_known_freq", "tsc_reliable", "tsc_scale", "tsx_force_abort", "umip",
        "v_spec_ctrl", "v_vmsave_vmload", "vgif", "vmcb_clean", "vme", "vmmcall", "vmx", "vnmi", "vpid", "virt_ssbd", "wbnoinvd", "wdt", "x2apic", "x2avic",
        "xtopology", "xtpr",
    )
)  # fmt: skip


def _cpu(plan: Plan) -> t.Iterator[str]:
    missing = sorted(set(plan.here["host"]["cpu_features"]) - set(plan.there["host"]["cpu_features"]) - KERNELS_OWN)
    if plan.live and missing and plan.here["host"]["arch"] == plan.there["host"]["arch"]:
        yield "the processor of {0} lacks {1}, which programs on {2} may be using: move it with migrate_mode=offline, or choose another destination".format(
            plan.destination, _some(missing), plan.source
        )


def _some(names: t.Sequence[str], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (" and {0} more".format(len(names) - limit) if len(names) > limit else "")


CHECKS: dict[str, Check] = {
    "architecture": _architecture,
    "cpu": _cpu,
}
