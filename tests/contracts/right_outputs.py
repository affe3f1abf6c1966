"""Outputs of a right launch, worked out without a GPU: a few configs of each case, by the helpers of its own tests.

In: name of a case. Out: configs and the arrays that a right kernel leaves of each.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.cases.case import Config, Outputs
from gpusim.evidence.cases.gemm_output import target

Right = tuple[Config, Outputs]


def tests_of(name: str) -> ModuleType:
    """``tests/kernels/test_<name>.py``."""
    return importlib.import_module(f"..kernels.test_{name}", __package__)


def few(configs: Iterable[Any], count: int = 3) -> list[Any]:
    """The first, the last and evenly spaced ones between."""
    given = list(configs)
    return [given[idx] for idx in sorted({int(idx) for idx in np.linspace(0, len(given) - 1, count)})]


def all_configs(tests: Any) -> list[Config]:
    """Configs of all groups, with seed 1."""
    return [config for group in tests.CASE.groups for config in tests.CASE.configs(group, 1)]


def windows_of(tests: Any, config: Config) -> NDArray[np.uint8]:
    """Bytes that the case expects in the windows of its output."""
    return np.concatenate([tests.case.expected(config, *window) for window in tests.case._out(config).windows])


def gemm_windows(config: Config, product: NDArray[Any]) -> NDArray[np.uint8]:
    """Bytes of the checked windows of an fp32 D."""
    raw = np.ascontiguousarray(product.astype("<f4")).reshape(-1).view(np.uint8)
    return np.concatenate([raw[offset : offset + size] for offset, size in target(config, "fp32").windows])


def _cache_hints(tests: Any) -> list[Right]:
    case = tests.MODULE
    hints = tests.config("hints", set_mib="8", stream_mib="16")
    told = np.zeros((132, 4), dtype="<u4")
    told[5, 0], told[:, 3] = int(case.PATTERN.sum(dtype=np.uint64)) * (2 * 8 + 16) % 2**32, np.arange(132)
    fill = tests.config("written", kernel="fill", stream_mib="1")
    return [(hints, {"told": told}), (fill, {"stored": case.word_at(np.arange(2**18, dtype=np.uint32)).view(np.uint8)})]


def _clock_probe(tests: Any) -> list[Right]:
    return [(tests.BUSY, {"done": tests.done()}), (tests.NOTHING, {"mark": np.array([0xC10C], dtype="<u4")})]


def _cold_launch(tests: Any) -> list[Right]:
    found: list[Right] = []
    for kernel in tests.case.KERNELS:
        config = tests.case.Config(kernel, "cold", num_ctas=2, turn=0)
        words = tests.case.given(config)
        threads = np.arange(len(words), dtype=np.uint32)
        value = {"empty": 0 * words, "store_one": threads + 7, "load_one": words + 7}[kernel]
        found.append((config, {"to": np.where(threads % 32 == 0, value, 0)}))
    return found


def _copy_rate(tests: Any) -> list[Right]:
    store = tests.find("ring_store_read_2d", outer=64, swizzle="128B", in_flight=4, num_issuers=2)
    train = tests.find("train_load_2d", num_copies=8)
    reduce = tests.find("ring_reduce_2d", dtype="bf16", outer=64, in_flight=4, num_issuers=4)
    times = [tests.ring_times(4, 40, 700), tests.ring_times(2, 40, 300, 4), tests.train_times(train, 12, 900)]
    times.append(tests.ring_times(4, 40, 300, 4))
    configs = (tests.RINGS[0], store, train, reduce)
    return [(config, tests.outputs_of(config, each)) for config, each in zip(configs, times, strict=True)]


def _fragment_stores(tests: Any) -> list[Right]:
    config = tests.case.config_of(lane_bytes=4, pitch=4096, span=1 << 20)
    held = np.concatenate([
        (offset // 4 + np.arange(num_bytes // 4)) * tests.case.MIX % (1 << 32)
        for offset, num_bytes in tests.case.matrix_of(config).windows
    ])  # fmt: skip
    return [(config, {"matrix": held.astype("<u4").view("u1")})]


def _launch_order(tests: Any) -> list[Right]:
    case = tests.case
    start, tail = tests.find("start", slots=1, threads=32, cluster=1), tests.find("tail", slots=2, grid=133)
    begins = np.arange(133) * 1.5
    sms = np.arange(133) % case.NUM_SMS
    return [
        (start, tests.marks_of(sms[:132], begins[:132], case.stays(start), case.NUM_SMS)),
        (tail, tests.marks_of(sms, begins, case.stays(tail), 0)),
    ]


def _line_halves(tests: Any) -> list[Right]:
    case, found = tests.case, []
    for config in few(tests.ALL):
        sums = []
        for offset, num_bytes in case._sums(config).windows:
            some = np.unique(np.linspace(0, num_bytes // 4 - 1, case.NUM_CHECKED).astype(np.int64))
            window = np.zeros(num_bytes // 4, dtype=np.uint32)
            window[some] = case.expected(config, offset // 4 + some)
            sums.append(window)
        found.append((config, {"sums": np.concatenate(sums).view(np.uint8)}))
    return found


def _power_bursts(tests: Any) -> list[Right]:
    case = tests.case
    config = next(config for config in tests.CONFIGS if config["kernel"] == "feed_bf16")
    samples = np.zeros((132, case.loads.num_samples(config), 2), dtype=np.uint64)
    samples[:, :, 0] = 1000 + np.arange(samples.shape[1]) * 5000
    samples[:, :, 1] = samples[:, :, 0] * np.uint64(3) // np.uint64(2)
    done = np.zeros((132, 18), dtype=np.uint64)
    done[:, :16] = 5
    return [(config, {"samples": samples, "done": done, "d": case.steps.product("feed_bf16", "random").astype(np.float32)})]


def _promoted_lookups(tests: Any) -> list[Right]:
    config = tests.case.walk("cp", "128", 64, 32, 1, 12)
    sums = tests.case.sums(32, 11)
    return [(config, {"told": np.array([(sums[cta // 12], 0) for cta in range(132)], dtype="<u4").view("<i4")})]


def _reduction(tests: Any) -> list[Right]:
    found: list[Right] = []
    for axis, dtype in (("row", "fp32"), ("column", "bf16")):
        config = next(item for item in tests.CONFIGS if item["dtype"] == dtype and item["axis"] == axis)
        given = tests.CASE.launch(config, False).arguments[0]
        raw = given.window(0, given.num_bytes)
        x = raw.view("<f4") if dtype == "fp32" else (raw.view("<u2").astype("<u4") << 16).view("<f4")
        shape = int(config["rows"]), int(config["columns"])
        found.append((config, {"out": x.reshape(shape).sum(axis=int(axis == "row"))}))
    return found


def _scattered_reads(tests: Any) -> list[Right]:
    times = np.tile(np.array([[1000, 201000]], dtype="<i8"), (tests.case.NUM_CTAS, 1))
    return [
        (config, {"sum": np.array([tests.case.expected(config)], dtype="<u4"), "times": times})
        for config in tests.CONFIGS[:1]
    ]  # fmt: skip


def _sector_parts(tests: Any) -> list[Right]:
    case = tests.case
    store = case.Config("store", sectors="0110", words=4, span_bytes=1 << 20, num_ctas=1)
    held = np.full(1 << 18, 0xFFFFFFFF, dtype=np.uint32)
    words = case.words_of(store, np.arange(case.num_accesses(store)))
    held[words] = (words * 0x9E3779B1).astype(np.uint32)
    read = case.Config("read_cg", sectors="1000", words=1, span_bytes=1 << 20, num_ctas=1)
    sums = np.zeros(case.NUM_SUMS, dtype=np.uint32)
    sums[5] = int(case.source(read).array[: 1 << 18 : 32].sum(dtype=np.uint64)) % (1 << 32)
    return [(store, {"buffer": held.view("u1")}), (read, {"sums": sums})]


def _sgemm(tests: Any) -> list[Right]:
    found: list[Right] = []
    for layout in tests.case.LAYOUTS:  # BLAS letters: t of A and n of B have k contiguous
        config = tests.small(layout)
        m, n, k = (int(config[name]) for name in "mnk")
        a, b = (tests.floats(item.window(0, item.num_bytes), "fp32") for item in tests.case.operands(config))
        left = a.reshape(m, k) if layout[0] == "t" else a.reshape(k, m).T
        right = b.reshape(n, k).T if layout[1] == "n" else b.reshape(k, n)
        found.append((config, {"d": gemm_windows(config, left @ right)}))
    return found


def _sgemm_naive(tests: Any) -> list[Right]:
    config = {"kernel": "tiled", "m": "70", "n": "33", "k": "64"}
    a, b = (tests.floats(item.window(0, item.num_bytes), "fp32") for item in tests.case.operands(config))
    return [(config, {"d": gemm_windows(config, a.reshape(70, 64) @ b.reshape(64, 33))})]


def _shared_counter(tests: Any) -> list[Right]:
    case, found = tests.case, []
    for config in few(all_configs(tests), 12):
        grid, threads = int(config["num_ctas"]), int(np.prod(case.block_of(config)))
        if config["kernel"] == "ids_none":
            right = np.arange(grid, dtype=np.uint32) + case.MORE
        elif config["kernel"] in case.IDS:
            right = np.tile(np.arange(threads, dtype=np.uint32) + case.MORE, grid)
        else:
            right = np.tile(case.expected(config), grid)
        found.append((config, {"out": right}))
    return found


def _smem_copy(tests: Any) -> list[Right]:
    small, large = tests.case.config_of("vectorized_none", 1 << 20), tests.case.config_of("scalar_none", 64 << 20)
    found: list[Right] = []
    for config in (small, large):
        source, out = tests.case.tensors(config)
        windows = getattr(out, "windows", ((0, 1 << 20),))
        found.append((config, {"out": np.concatenate([source.window(*window) for window in windows])}))
    return found


def _specialized_steps(tests: Any) -> list[Right]:
    config = tests.case.config_of(tests.case.SPECIALIZED[1], ctas=1, steps=8, stages=2, epilogue="direct")
    arrays = {"told": np.full((1, tests.case.NUM_ROUNDS), 100), "flags": np.zeros(tests.case.FLAG_WORDS)}
    return [(config, arrays | {"d": tests_of("hopper_gemm").answer(config)})]


def _strided_copy(tests: Any) -> list[Right]:
    found: list[Right] = []
    for stride in tests.case.STRIDES:
        config = {"kernel": "strided_copy_i1", "elements": "3000", "stride": str(stride)}
        right = tests.case.tensors(config)[0].array.reshape(-1)[: 3000 * stride : stride].copy()
        found.append((config, {"out": right.view("u1")}))
    return found


def _tensor_map(tests: Any) -> list[Right]:
    case, found = tests.case, []
    for num in (0, 6):
        config = next(dict(config) for config in tests.CONFIGS["build"] if config["num_fields"] == str(num))
        smem = np.full((case.NUM_ROUNDS, 1024), 0xFF, dtype=np.uint8)
        width, height = 32 if num >= 5 else 64, 4 if num >= 6 else 8
        for idx in range(case.NUM_ROUNDS):
            box = b"".join(tests.element(config, idx, row, column) for row in range(height) for column in range(width))
            smem[idx, : len(box)] = np.frombuffer(box, dtype=np.uint8)
        times = tests.build_times((40, 10, 300, 60, 8), (1200, 650, 640))
        found.append((config, {"smem": smem.reshape(-1), "times": times}))
    config = next(dict(config) for config in tests.CONFIGS["turns"] if config["num_maps"] == "24")
    times = np.zeros(4 + 4 * case.MOST_MAPS, dtype="<u4")
    stamps = times[4:].reshape(2, case.MOST_MAPS, 2)
    stamps[0, :24, 1], stamps[1, :24, 1] = 1100 + np.arange(24), 640
    return [*found, (config, {"smem": np.array(case.data()[: 24 * 128]), "times": times})]


def _transpose(tests: Any) -> list[Right]:
    config = {"kernel": "transpose_none", "m": "96", "n": "160"}
    given = tests.case.tensors(config)[0].array.reshape(-1)[: 96 * 160].reshape(96, 160)
    return [(config, {"out": given.T.copy().reshape(-1).view("u1")})]


def _half_stores(tests: Any) -> list[Right]:
    configs = [tests.case.Config(kernel, num_warps=4, num_ctas=1) for kernel in ("store_2_0", "red_8")]
    return [(config, {"buffer": tests.case.wanted(config)}) for config in configs]


def _counted_code(tests: Any) -> list[Right]:
    config = {"kernel": "once_8", "caches": "flushed", "kib": "8", "sms": "132", "warps": "4"}
    return [(config, {"sums": np.full(132 * 128, 28.0 + 8 * 64, dtype="<f4")})]


def _launch_behind(tests: Any) -> list[Right]:
    config = next(config for config in tests.CONFIGS if config["kernel"] == "spin" and config["num_ctas"] == "132")
    return [(config, {"seen": np.full(132, 10_001, dtype=np.uint32)})]


def _of(helper: str, *arguments: Any, output: str = "", **named: Any) -> Callable[[Any], list[Right]]:
    """As ``_arrays``, of two configs."""

    def made(tests: Any) -> list[Right]:
        return _arrays(tests, helper, few(all_configs(tests), 5), *arguments, output=output, **named)

    return made


def _arrays(
    tests: Any, helper: str, configs: Iterable[Config], *arguments: Any, output: str = "", **named: Any
) -> list[Right]:
    """By a helper of the tests that takes a config and ``arguments``; ``output``: name of its one array."""
    function = getattr(tests, helper)
    found = [(config, function(config, *arguments, **named)) for config in configs]
    return [(config, {output: outputs} if output else outputs) for config, outputs in found]


def _rows(tests: Any) -> list[Right]:
    of_dtype = [[item for item in tests.CONFIGS if item["dtype"] == dtype] for dtype in ("fp32", "bf16")]
    configs = [min(items, key=lambda item: int(item["rows"]) * int(item["columns"])) for items in of_dtype]
    return [(config, {"out": tests.answer(config, bytes_of)}) for config in configs]


def bytes_of(values: NDArray[np.float64], dtype: str) -> NDArray[np.uint8]:
    """What a kernel stores of floats: fp32, or bf16 rounded to nearest (ties away from zero)."""
    words = values.astype("<f4").reshape(-1)
    if dtype == "bf16":
        return ((words.view("<u4") + np.uint32(0x8000)) >> np.uint32(16)).astype("<u2").view(np.uint8)
    return words.view(np.uint8)


RIGHT: dict[str, Callable[[Any], list[Right]]] = {
    "barriers": lambda t: _arrays(t, "answers", t.CONFIGS[::148]),
    "behind_conflicts": lambda t: _arrays(t, "outputs_of", few(t.ALL, 6)),
    "busy_sharing": lambda t: _arrays(t, "outputs", [t.case.config_of((0, 16), 100, num_slots=2)]),
    "cache_hints": _cache_hints,
    "clock_probe": _clock_probe,
    "cold_code": _of("answers"),
    "cold_launch": _cold_launch,
    "cold_tiles": lambda t: _arrays(t, "outputs_of", [t.case.by_tma("shared_24", 8320, 6)]),
    "copies_beside_reads": _of("outputs_of"),
    "copy_grains": lambda t: [(config, {"out": windows_of(t, config)}) for config in few(t.CONFIGS, 4)],
    "copy_rate": _copy_rate,
    "copy_sharing": lambda t: _arrays(t, "outputs_of", [t.find(pattern="near_2", ctas=2, warps=4, a_rows=64, b_rows=64)]),
    "counted_code": _counted_code,
    "cp_async_access": _of("copied", output="dump"),
    "cta_turnover": lambda t: _arrays(
        t, "right", [t.config_of(name, threads=32) for name in t.case.SPINS + t.case.LOADS], output="out"
    ),
    "edges_beside_loads": lambda t: [(config := t.case.Row(rows_inside=8), {
        "smem": t.case.expected_smem(config), "times": np.full((128, 2), (9600, 0), dtype="<u4"),
    })],
    "elementwise": lambda t: [
        (config, {"out": t.reference(config).view(np.uint8)})
        for config in (t.case.config_of(kernel, 5000) for kernel in t.case.KERNELS)
    ],
    "elementwise_shapes": lambda t: _arrays(t, "outputs_of", few(t.SMALL, 6)),
    "epilogue_pieces": lambda t: _arrays(t, "answers", few(t.CONFIGS)),
    "fill_beside_wgmma": lambda t: _arrays(
        t, "outputs_of", [*(t.one(fill) for fill in t.case.FILLS), t.one("st_shared", has_train=False)],
        train_cycles=41_000, cycles=40_000, turns=200,
    ),
    "first_loads": lambda t: _arrays(t, "outputs_of", [t.case.Row(steps=64)]),
    "fma_loops": lambda t: _arrays(t, "outputs_of", few(t.CONFIGS, 5), 300),
    "fragment_stores": _fragment_stores,
    "framework_ops": lambda t: _arrays(t, "answer", t.SMALL),
    "framework_rows": lambda t: _arrays(t, "answer", t.SMALL),
    "gather": lambda t: _arrays(t, "answer", few(t.SMALL), output="out"),
    "gather_block": lambda t: _arrays(t, "outputs_of", t.SMALL),
    "global_access": lambda t: _arrays(t, "outputs_of", few(all_configs(t), 5)),
    "grid_counter": lambda t: _arrays(t, "outputs_of", t.SMALL),
    "grid_reduction": lambda t: _arrays(t, "answer", t.SMALL, output="out"),
    "half_stores": _half_stores,
    "hgemm": lambda t: _arrays(t, "answer", [t.SMALL], output="d"),
    "hopper_gemm": lambda t: _arrays(t, "answer", [t.SMALL], output="d"),
    "kernel_end": lambda t: [
        (config, {"to": t.case.expected(config)})
        for config in (t.case.Config(kernel, turns=8, num_ctas=2, again=0) for kernel in t.case.KERNELS)
    ],
    "l2_residency": lambda t: _arrays(t, "outputs_of", [t.one(readers="both_sides"), t.one()]),
    "launch_behind": _launch_behind,
    "launch_order": _launch_order,
    "layer_norm": _rows,
    "library_knobs": lambda t: [(t.SMALL, t.answer(t.SMALL))],
    "line_halves": _line_halves,
    "line_copies": lambda t: _arrays(t, "outputs_of", t.SMALL),
    "line_sharing": lambda t: _arrays(t, "outputs_of", [t.one(skew=300, sms="3 70")], (640, 410)),
    "load_loops": _of("outputs_of"),
    "load_turns": lambda t: _arrays(t, "outputs_of", few(t.ALL, 5)),
    "loads_beside_stores": lambda t: _arrays(t, "outputs_of", [t.case.config_of("8", every=2), t.case.config_of("lines")]),
    "loop_code": lambda t: _arrays(t, "outputs_of", [t.PLACES[-1]], 700, num_sms=132),
    "map_sources": lambda t: _arrays(t, "outputs_of", t.SMALL[:2]),
    "math_rate": lambda t: _arrays(t, "answers", few(t.CONFIGS, 5)),
    "memory_bandwidth": lambda t: _arrays(t, "outputs_of", t.RIGHT),
    "memory_bursts": lambda t: _arrays(t, "outputs", [t._one(way) for way in few(t.case.WAYS)]),
    "memory_channels": lambda t: [(
        config := t.case.Config(1024, chunk_bytes=4096),
        t.outputs(config, np.full(t.case.lists(config).shape[:-1], 100, dtype=np.uint32)),
    )],
    "mma_loops": lambda t: _arrays(t, "outputs_of", few(t.CONFIGS, 5), 300),
    "multicast_rings": lambda t: _arrays(t, "told", [t.config_of(2, "bands", 0)], output="told"),
    "multicast_sharing": lambda t: _arrays(t, "told", [t.config_of(2, "pairs_4")], output="told"),
    "narrow_copies": lambda t: _arrays(t, "outputs_of", few(t.CHECKED, 4)),
    "occupancy": lambda t: _arrays(t, "answers", [t.CONFIGS[0]], 7),
    "own_copies": lambda t: _arrays(t, "outputs_of", [t.one(ctas=132), t.one(is_stamped=1)]),
    "part_sums": lambda t: _arrays(t, "told", [t.case.Config(kernel, num_warps=4, num_ctas=2) for kernel in t.case.KINDS]),
    "part_turns": lambda t: _arrays(t, "outputs_of", [t.find("tma", 2, 3)], short=160_000, long=200_000),
    "piece_order": lambda t: [(config, {"out": windows_of(t, config)}) for config in few(t.CONFIGS, 2)],
    "pipe_beside_wgmma": lambda t: _arrays(t, "right", [t.own("iadd3", 16), t.own("ldgsts", 8)]),
    "pitch_sharing": lambda t: _arrays(
        t, "told", [t.case.Config(m_tiles=2, n_tiles=3, steps=8, wrap=16, beyond_bytes=48)], output="told"
    ),
    "pointer_chase": lambda t: _arrays(t, "outputs_of", [t.SIDE]),
    "power_bursts": _power_bursts,
    "power_clock": lambda t: _arrays(
        t, "answers", [t.find(run_us=250, tensor_duty=50, stream="l2", stream_duty=50)], np.array([1800.0])
    ),
    "power_mma": lambda t: _arrays(
        t, "outputs_of",
        [t.find(kernel=name, duty=50, data="random") for name in ("mma_bf16", "feed_bf16", "read_smem", "copy_l2")], 1,
    ),
    "power_tma": lambda t: _arrays(t, "answers", [t.find(tensor_duty=50, stream="l2", stream_duty=50)], 1800.0),
    "promoted_lookups": _promoted_lookups,
    "reads_beside_writes": lambda t: _arrays(t, "_outputs", [t._one("line", "0"), t._one("line", "700")]),
    "reduction": _reduction,
    "ring_math": lambda t: _arrays(t, "outputs_of", [t.ring(is_noted=1)]),
    "row_rereads": lambda t: _arrays(t, "answer", t.SMALL[:1], output="sums"),
    "scattered_reads": _scattered_reads,
    "sector_parts": _sector_parts,
    "sector_requests": lambda t: _arrays(t, "outputs_of", [item for item in t.CONFIGS if item.num_ctas == 16][:2]),
    "sgemm": _sgemm,
    "sgemm_naive": _sgemm_naive,
    "shared_access": lambda t: _arrays(t.warp, "run_shared", [
        t.case.config_of(t.case.patterns(op, count=1, seed=5)[0], 0) for op in t.case.OPS[::6]
    ], 1),
    "shared_counter": _shared_counter,
    "shared_data_stage": _of("outputs_of"),
    "shared_rate": lambda t: _arrays(t, "slow_warp", few(t.LONE, 6)),
    "shared_turns": _of("outputs_of"),
    "sharers_apart": lambda t: _arrays(t, "outputs_of", [t.CONFIGS["late"][0]], late_cycles=60.0),
    "side_bursts": lambda t: _arrays(t, "outputs_of", [t.COPY]),
    "smem_copy": _smem_copy,
    "softmax": _rows,
    "store_drift": lambda t: _arrays(t, "told", [t.case.Config(m_tiles=33, n_tiles=4, steps=8, wrap=8)]),
    "store_end": lambda t: [
        (config, {"to": t.case.expected(config)})
        for config in (t.case.Config(f"store_{num}", "cold", num_ctas=2, again=0) for num in t.case.VECTORS)
    ],
    "store_fence": lambda t: [(
        next(config for config in t.CONFIGS if config["op"] == "b64" and config["warps"] == "4"), t.outputs_of("b64", 4)
    )],
    "specialized_steps": _specialized_steps,
    "stream_grids": lambda t: [(config, {"out": windows_of(t, config)}) for config in few(t.CONFIGS, 2)],
    "strided_copy": _strided_copy,
    "tensor_map": _tensor_map,
    "tensor_map_grid": lambda t: _arrays(t, "outputs_of", t.SMALL),
    "tile_arrival": lambda t: _arrays(t, "outputs_of", [t.one(num_live=33), t.one(watched=1)]),
    "tile_bursts": lambda t: _arrays(t, "outputs_of", [t.one("tall_16", "memory", met=0)]),
    "tile_order": lambda t: [(t.CONFIGS[0], t.seen())],
    "tile_pitch": lambda t: _arrays(t, "answer", [t.CONFIGS[group][8] for group in ("alone", "shared", "cold")]),
    "tile_sharing": lambda t: _arrays(t, "answer", [configs[7] for configs in t.CONFIGS.values()]),
    "tma_edges": lambda t: [(config := t.case.Row(rows_inside=8), {
        "smem": t.case.expected_smem(config), "times": np.array([[1000, 0]], dtype="<u4"),
    })],
    "tma_loop": lambda t: _arrays(
        t, "outputs_of",
        [t.one(name, num_boxes=3, num_stages=4, box_rows=16) for name in ("loop_warps", "loop_warps_timed")], 90,
    ),
    "tma_writes": lambda t: _arrays(t, "outputs_of", [t.one("128B", 128, "8", 2)], 128),
    "transpose": _transpose,
    "transpose_rowwise": lambda t: _arrays(t, "outputs_of", few(t.SMALL, 2)),
    "turn_taking": lambda t: _arrays(
        t, "outputs_of",
        [t.one(name) for name in ("beside_n128_store_wide", "turns_n64_direct", "waits_n64_2_apart_gives")],
    ),
    "wave_sharing": lambda t: _arrays(t, "told", [t.case.Config(m_tiles=2, n_tiles=3, steps=8, wrap=8)], output="told"),
    "wavefront_cycles": lambda t: _arrays(t, "outputs_of", few(t.CONFIGS), 9000),
    "wgmma_operands": lambda t: _arrays(t, "answers", few(t.CONFIGS, 6)),
    "wgmma_rate": lambda t: _arrays(t, "answers", few(t.SOME, 6)),
}  # fmt: skip
"""Right outputs of a few configs, by case."""
