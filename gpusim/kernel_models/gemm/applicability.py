"""Conditions under which an option of a GEMM applies. Refusals and ``--help`` use the same rules.

In: parameters whose instructions are known. Out: a refusal of the first option that does not apply; conditions as text.
"""

from __future__ import annotations

from typing import Any

from gpusim.kernel_models.applicability import Needs, Rule, conditions_of
from gpusim.kernel_models.mainloop.output import BY_TMA
from gpusim.workload.launch import Feature

MULTISTAGE = ("multistage",)
PRODUCERS = ("warp_specialized", "cooperative", "pingpong")
"""Schedules in which a producer warp loads."""


WGMMA, MMA_SYNC, FMA = (Needs(field="math", values=(math,)) for math in ("wgmma", "mma_sync", "fma"))
BY_WARPS, BY_MMA = (Needs(field="math", values=("mma_sync", other)) for other in ("fma", "wgmma"))
TMA, CP_ASYNC = (Needs(field="copy_", values=(copy,)) for copy in ("tma", "cp_async"))
BY_THREADS = Needs(field="copy_", values=("cp_async", "ldg"))
NO_PRODUCER = Needs(field="schedule", values=MULTISTAGE)
NO_TURNS = Needs(field="schedule", values=("multistage", "warp_specialized", "cooperative"))
PRODUCER = Needs(field="schedule", values=PRODUCERS, holds_unset=False)
AFTER_WAIT = Needs(field="prefetch", values=("after_wait",), holds_unset=False)
TWO_REGISTER_STAGES = Needs(field="register_stages", values=(2,))
SPLIT = Needs(field="split_k", least=2)
IN_KERNEL, SECOND_KERNEL = (Needs(field="split_k_mode", values=(mode,)) for mode in ("in_kernel", "second_kernel"))


OF_TYPES = (
    Rule("math", (Needs(field="dtype", values=("fp32",)),), "multiplies fp32, --dtype is {dtype}",
         "use --math mma_sync or wgmma", only=("fma",)),
    Rule("math", (Needs(field="dtype", values=("bf16", "fp16", "tf32", "fp8", "int8")),), "does not take --dtype fp32",
         "use --math fma, or --dtype tf32", only=("mma_sync", "wgmma")),
    Rule("schedule", (BY_MMA,), "its consumers run wgmma, the math is {math}",
         "use --schedule multistage, or --dtype tf32", only=PRODUCERS),
    Rule("schedule", (WGMMA,), "its consumers run wgmma, the math is {math}",
         "use --schedule multistage, or --math wgmma", only=PRODUCERS),
    Rule("copy_", (BY_MMA,), "the fma kernel loads by cp.async or LDG", "use --copy cp_async", only=("tma",)),
    Rule("copy_", (BY_WARPS, NO_PRODUCER), "warps of mma.sync and FFMA load through registers", "use --copy cp_async",
         only=("ldg",)),
    Rule("accumulator", (Needs(field="dtype", values=("fp16", "fp8")),), "no instruction sums {dtype} so", "leave it out",
         only=("fp16",)),
    Rule("accumulator", (Needs(field="dtype", values=("int8",)),), "no instruction sums {dtype} so", "leave it out",
         only=("int32",)),
    Rule("accumulator", (Needs(field="dtype", values=("bf16", "fp16", "tf32", "fp8", "fp32")),),
         "no instruction sums {dtype} so", "leave it out", only=("fp32",)),
    Rule("accumulator", (Needs(field="split_k", values=(1,)),), "parts of K are added as fp32",
         "use --split-k-mode serial, or --accumulator fp32", only=("fp16",),
         unless=Needs(field="split_k_mode", values=("serial",))),
    Rule("out_dtype", (Needs(field="dtype", values=("int8",)),), "products of {dtype} are fp32",
         "use --out-dtype fp32 or bf16", only=("int8", "int32")),
)  # fmt: skip
"""Rules of types, and of the instructions that take them."""

OF_INSTRUCTIONS = (
    Rule("warps", (BY_WARPS,), "wgmma is issued by warpgroups", "use --consumer-warpgroups"),
    Rule("consumer_warpgroups", (WGMMA,), "{math} is issued by warps", "use --warps"),
    Rule("consumer_split", (WGMMA,), "{math} is issued by warps", "use --warps"),
    Rule("consumer_split", (NO_TURNS,), "pingpong's consumers take whole tiles",
         "use --schedule cooperative, or leave it out"),
    Rule("wgmma_depth", (WGMMA,), "the math is {math}", "leave it out"),
    Rule("prefetch", (NO_PRODUCER,), "{schedule} has a producer warp", "use --schedule multistage, or leave it out"),
    Rule("prefetch", (WGMMA,), "it waits for wgmma, the math is {math}", "use --prefetch before_mma or after_mma",
         only=("after_wait",)),
    Rule("cta_barrier", (Needs(field="schedule", values=MULTISTAGE, holds_unset=False), TMA, AFTER_WAIT),
         "the place of the CTA barrier is free only where warps load by TMA after their wait for wgmma",
         "use --schedule multistage --copy tma --prefetch after_wait, or leave it out"),
    *(Rule(field, (FMA,), "threads have tiles in kernels of FFMA, the math is {math}", "use --dtype fp32, or leave it out")
      for field in ("thread_tile", "thread_access")),
    Rule("register_stages", (BY_WARPS,), "wgmma reads its operands in shared memory", "leave it out"),
    Rule("stall_on_ldgsts", (MMA_SYNC, CP_ASYNC), "only mma.sync with cp.async waits so", "leave it out"),
    Rule("pad", (MMA_SYNC,), "the math is {math}", "use --math mma_sync, or leave it out"),
    Rule("pad", (BY_THREADS,), "TMA writes rows without gaps", "use --copy cp_async, or leave it out"),
    Rule("pad", (Needs(field="swizzle", values=("none",)),), "rows are swizzled", "use --swizzle none"),
    Rule("swizzle", (BY_MMA,), "the fma kernel reads rows as vectors, without conflicts", "use --swizzle none",
         harmless=("none",)),
    Rule("splitk_reduction", (SPLIT, SECOND_KERNEL), "only the second kernel of split-K reduces so",
         "use --split-k 2 --split-k-mode second_kernel, or leave it out"),
    Rule("cluster_sync", (Needs(field="cluster", least=2),), "only CTAs of a cluster meet so",
         "use --cluster 2x1, or leave it out"),
    Rule("prefetch_tensormap", (TMA,), "only copies by TMA have tensor maps", "use --copy tma, or leave it out"),
    Rule("tensormaps", (TMA,), "only copies by TMA have tensor maps", "use --copy tma, or leave it out"),
    Rule("bias_along", (Needs(field="bias", values=(True,)),), "there is no bias", "use --bias, or leave it out"),
    Rule("bias_along", (Needs(field="split_k_mode", values=("in_kernel", "serial")),),
         "the second kernel of split-K adds an element for each column", "use --split-k-mode in_kernel", only=("m",)),
    Rule("batch_mode", (Needs(field="batch", least=2),), "there is one GEMM", "use --batch 2, or leave it out"),
    Rule("fence", (NO_PRODUCER, WGMMA, CP_ASYNC),
         "only a multistage kernel that copies by cp.async what wgmma reads has a fence to leave out",
         "use --schedule multistage --copy cp_async --math wgmma, or leave it out"),
)  # fmt: skip
"""Rules that need no shape: instructions and schedule are known, except a schedule that depends on the tile."""

OF_CODE: tuple[tuple[str, str, tuple[Needs, ...], str], ...] = (
    *(
        ("mainloop", f"math_before_{what}", (MMA_SYNC, TWO_REGISTER_STAGES, Needs(field="stages", least=2)),
         "mma.sync kernels with two register stages and two stages or more")
        for what in ("copies", "barrier", "use")
    ),
    *(("mainloop", field, (FMA,), "kernels of FFMA") for field in ("instructions", "fma_bank_reads")),
    ("mainloop", "imad_wide_per_copy", (NO_PRODUCER, WGMMA, CP_ASYNC), "multistage kernels of cp.async and wgmma"),
    *(("mainloop", field, (WGMMA,), "kernels of wgmma") for field in ("wgmma_serialized", "wgmma_depth")),
    ("producer", "chain_cycles", (TMA,), "kernels that copy by TMA"),
    ("tile_scheduler", "chain_after_turn_cycles", (Needs(field="schedule", values=("pingpong",)),), "pingpong kernels"),
    ("layout", "producer", (PRODUCER, TMA), "kernels with a producer that copies by TMA"),
    ("layout", "last_part", (SPLIT, IN_KERNEL), "kernels that add up their parts of K (--split-k-mode in_kernel)"),
)  # fmt: skip
"""Fields of compiled code that only some kernels have: part, field, conditions, and which kernels."""

OF_PERSISTENCE = (
    Rule("persistent", (NO_TURNS,), "pingpong's consumers take turns at the tiles of one CTA",
         "use --persistent, or --schedule cooperative", only=(False,)),
    Rule("split_k", (NO_TURNS,), "the parts of a tile are CTAs of their own", "use --schedule cooperative"),
    Rule("split_k", (Needs(field="persistent", values=(False,)),), "the parts of a tile are CTAs of their own",
         "use --no-persistent"),
)  # fmt: skip
"""Rules of CTAs that walk over tiles."""

OF_SCHEDULE = (
    Rule("mbarrier_arrive", (PRODUCER,), "multistage has no producer to give stages back to",
         "use --mbarrier-arrive warpgroup"),
    Rule("mbarrier_arrive", (Needs(field="schedule", values=("warp_specialized", "cooperative")),),
         "consumers of pingpong take turns at whole tiles", "use --schedule cooperative"),
    Rule("mbarrier_arrive", (TMA,), "threads that copy by cp.async arrive by themselves", "use --copy tma"),
    Rule("mbarrier_arrive", (Needs(field="cluster", values=((1, 1),)),), "every thread arrives in its own CTA alone",
         "use --cluster 1x1"),
)  # fmt: skip
"""Rules that need the schedule, whose default depends on the tile."""

OF_SHAPE = (
    Rule("raster_order", (NO_PRODUCER, Needs(field="persistent", values=(False,))),
         "only CTAs that load and multiply one tile end at once without one",
         "use --schedule multistage --no-persistent, or leave it out", only=("full_bands",)),
    Rule("setmaxnreg", (PRODUCER,), "multistage has no producer to take registers from", "use --setmaxnreg none",
         harmless=("none", "auto")),
    Rule("cluster", (TMA,), "{copy_} cannot multicast", "use --copy tma"),
    Rule("cluster", (PRODUCER,), "operands are multicast from a producer warp, multistage has none",
         "use --schedule cooperative"),
    *(Rule("epilogue", (Needs(field=field, values=(usual,)),), "only vectors in turn among lanes are staged",
           f"use --epilogue direct, or --{field.replace('_', '-')} {usual}", only=("smem",))
      for field, usual in (("thread_tile", "interleaved"), ("thread_access", "vector"))),
    Rule("epilogue", (TMA,), "this kernel has no tensor maps (--copy {copy_})", "use --epilogue smem", only=BY_TMA),
    Rule("epilogue", (Needs(field="split_k", values=(1,)),),
         "with --split-k {split_k} the parts leave as fp32 from registers", "use --epilogue direct",
         only=("smem", *BY_TMA), unless=Needs(field="split_k_mode", values=("serial",))),
)  # fmt: skip
"""Rules that are checked one by one, between the checks of sizes."""

RULES = (*OF_TYPES, *OF_INSTRUCTIONS, *OF_PERSISTENCE, *OF_SCHEDULE, *OF_SHAPE)

WANTS_FEATURE: tuple[tuple[str, tuple[str, ...], Feature, str], ...] = (
    ("schedule", PRODUCERS, "wgmma", "--schedule multistage"),
    ("math", ("wgmma",), "wgmma", "--math mma_sync"),
    ("copy_", ("tma",), "tma", "--copy cp_async"),
    ("cluster", (), "cluster", "--cluster 1x1"),
    ("consumer_warpgroups", (), "wgmma", "--warps 2x2"),
    ("setmaxnreg", (), "setmaxnreg", "--setmaxnreg none"),
    ("epilogue", BY_TMA, "tma", "--epilogue smem"),
    ("dtype", ("fp8",), "fp8", "--dtype bf16"),
)
"""Options that need a feature of the GPU, their values that need it (empty: all but the default), and alternatives."""


def applies_when(field: str) -> dict[str, str]:
    """Conditions on other options, as text, by the values of the option that they concern (empty: all).

    >>> applies_when("consumer_split"), applies_when("m")
    ({'': '--math wgmma, --schedule multistage or warp_specialized or cooperative'}, {})
    >>> applies_when("epilogue")["tma_store or tma_reduce"]
    '--copy tma, a GPU with tma'
    >>> applies_when("persistent")
    {'--no-persistent': '--schedule multistage or warp_specialized or cooperative'}
    """
    conditions = conditions_of(field, RULES)
    for name, wanting, feature, _ in WANTS_FEATURE:
        if name == field:
            conditions.setdefault(" or ".join(wanting), []).append(f"a GPU with {feature}")
    return {values: ", ".join(texts) for values, texts in conditions.items()}


def applies(field: str, config: Any) -> bool:
    """Whether an option applies to a kernel, whatever its value."""
    rules = (rule for rule in RULES if rule.field == field and not (rule.only or rule.harmless))
    return all(condition.holds_for(config) for rule in rules for condition in rule.needs)
