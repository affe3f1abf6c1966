"""The power limiter: what it draws, and the clock at which that meets the limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import ConfigError
from gpusim.machine.clock import Activity, ClockSpec, PowerLimiter
from gpusim.machine.config import load_gpu

TOY = load_gpu("toy").clock  # 1 pJ for everything, no idle power, constant voltage, 1000 W at most


def work(
    *, gflops: float = 0.0, hbm_gb: float = 0.0, cycles: float = 1e9, rate_class: str = "16bit"
) -> Activity:
    return Activity(
        cycles=cycles,
        num_flops=gflops * 1e9,
        rate_class=rate_class,
        l2_bytes=0.0,
        hbm_bytes=hbm_gb * 1e9,
        busy_fraction=1.0,
    )


def clock(
    activity: Activity, spec: ClockSpec = TOY, *, mode: str = "sustained", data: str = "random"
) -> float:
    return PowerLimiter(spec).clock_mhz(activity, mode=mode, data=data)


def test_power_is_energy_over_time() -> None:
    """10^12 FLOP at 1 pJ in 10^9 cycles: a watt at 1 GHz, half of it at half the clock."""
    limiter = PowerLimiter(TOY)
    assert limiter.power_w(work(gflops=1e3), mhz=1000.0, data="random") == pytest.approx(1.0)
    assert limiter.power_w(work(gflops=1e3), mhz=500.0, data="random") == pytest.approx(0.5)


def test_every_kind_of_work_draws_its_own_energy_over_the_idle_power() -> None:
    spec = replace(
        TOY, idle_power_w=7.0, l2_pj_per_byte=20.0, l2_zeros_fraction=0.25, bulk_pj_per_byte=10.0, fill_pj_per_byte=5.0,
        hbm_pj_per_byte=300.0, hbm_zeros_fraction=0.0, sm_busy_w=4.0,
    )  # fmt: skip
    activity = Activity(
        cycles=1e9, num_flops=1e12, rate_class="16bit", l2_bytes=1e11, hbm_bytes=1e10, busy_fraction=0.5, bulk_bytes=4e11,
        fill_bytes=8e11,
    )
    limiter = PowerLimiter(spec)
    assert limiter.power_w(activity, mhz=1000.0, data="random") == pytest.approx(7 + 1 + 2 + 4 + 4 + 3 + 2)
    assert limiter.power_w(activity, mhz=1000.0, data="zeros") == pytest.approx(7 + 0.5 + 0.5 + 1 + 1 + 0 + 2)


def test_voltage_enters_squared() -> None:
    limiter = PowerLimiter(replace(TOY, voltage_slope=0.5))
    full = limiter.power_w(work(gflops=1e3), mhz=1000.0, data="random")
    assert limiter.power_w(work(gflops=1e3), mhz=500.0, data="random") == pytest.approx(full * 0.5 * 0.75**2)


def test_light_work_runs_at_the_highest_clock() -> None:
    assert clock(work(gflops=1e3)) == TOY.max_mhz


def test_the_clock_stays_just_where_power_meets_the_limit() -> None:
    """2000 W at 1 GHz and constant voltage: 500 MHz draw 1000 W."""
    assert clock(work(gflops=2e6)) == pytest.approx(500.0)
    assert clock(work(gflops=0.999e6)) == 1000.0


def test_the_clock_does_not_fall_below_its_range() -> None:
    assert clock(work(gflops=1e9)) == pytest.approx(TOY.min_mhz)


def test_zeros_draw_less_and_run_faster() -> None:
    assert clock(work(gflops=2e6), data="zeros") == pytest.approx(1000.0)
    assert clock(work(gflops=4e6), data="zeros") == pytest.approx(500.0)


def test_zeros_do_not_help_the_fma_pipe() -> None:
    activity = work(gflops=2e6, rate_class="fp32")
    assert clock(activity, data="zeros") == clock(activity) == pytest.approx(500.0)


def test_one_launch_may_draw_more_than_many() -> None:
    spec = replace(TOY, single_power_w=2000.0)
    assert clock(work(gflops=4e6), spec, mode="single") == pytest.approx(500.0)
    assert clock(work(gflops=4e6), spec, mode="sustained") == pytest.approx(250.0)


def test_a_launch_may_draw_anything_until_its_limit_holds() -> None:
    """1 GHz for 100 us, then 500 MHz: 300,000 cycles take 100 + 400 us, 600 MHz on average."""
    spec = replace(TOY, single_power_delay_us=100.0)
    gflops = 2e6 * 3e5 / 1e9
    assert clock(work(gflops=gflops, cycles=3e5), spec, mode="single") == pytest.approx(600.0)
    assert clock(work(gflops=gflops / 3, cycles=1e5), spec, mode="single") == 1000.0
    assert clock(work(gflops=gflops, cycles=3e5), spec, mode="sustained") == pytest.approx(500.0)


def test_the_clock_of_one_launch_falls_with_the_power_of_the_tensor_cores_far_below_any_limit() -> None:
    """100 W at 1 GHz and a MHz a watt: f + f / 10 = 1000."""
    spec = replace(TOY, load_line_mhz_per_w=1.0)
    assert clock(work(gflops=1e5), spec, mode="single") == pytest.approx(1000.0 / 1.1)
    assert clock(work(gflops=1e5), spec, mode="single", data="zeros") == pytest.approx(1000.0 / 1.05)
    assert clock(work(gflops=1e5), spec, mode="sustained") == 1000.0
    assert clock(work(gflops=1e5, rate_class="fp32"), spec, mode="single") == 1000.0
    assert clock(work(hbm_gb=1e5), spec, mode="single") == 1000.0


@pytest.mark.parametrize("data", ["random", "zeros"])
@pytest.mark.parametrize("mode", ["single", "sustained"])
@pytest.mark.parametrize("gflops", [1e-3, 1e5])
def test_tensor_cores_that_work_have_a_highest_clock_of_their_own_at_any_rate(gflops: float, mode: str, data: str) -> None:
    spec = replace(TOY, tensor_mhz=900.0)
    assert clock(work(gflops=gflops), spec, mode=mode, data=data) == pytest.approx(900.0)
    assert clock(work(gflops=gflops, rate_class="fp32"), spec, mode=mode, data=data) == 1000.0


def bursts(num: int, share: float, cycles: float = 1e6) -> Activity:
    return replace(work(gflops=1.0, cycles=cycles), tensor_share=share, num_tensor_bursts=num)


def test_tensor_cores_that_rest_slow_the_sms_down_while_they_work_and_at_each_begin() -> None:
    """A fifth of a million cycles at 900 MHz, and ten bursts of 2000 MHz us each: 20 and 0.02 f MHz less."""
    spec = replace(TOY, tensor_mhz=900.0, tensor_burst_mhz_us=2000.0, tensor_rest_us=50.0, tensor_min_mhz=850.0)
    assert clock(bursts(0, 0.2), spec) == pytest.approx(900.0)  # no rest is long enough to be told
    assert clock(bursts(10, 0.2), spec) == pytest.approx(980.0 / 1.02)
    assert clock(bursts(20, 0.2), spec) == pytest.approx(900.0)  # rests of 44 us at this clock are none
    assert clock(bursts(100, 0.2), replace(spec, tensor_rest_us=1.0)) == pytest.approx(850.0)


def test_mma_sync_and_shared_memory_draw_their_own() -> None:
    """10^12 FLOP at 1.5 pJ, and 10^11 bytes at 20 pJ, half for zeros, in a second."""
    spec = replace(TOY, mma_sync_extra_fraction=0.5, smem_pj_per_byte=20.0, l2_zeros_fraction=0.5)
    activity = replace(work(gflops=1e3), is_mma_sync=True, smem_bytes=1e11)
    limiter = PowerLimiter(spec)
    assert limiter.power_w(activity, mhz=1000.0, data="random") == pytest.approx(1.5 + 2.0)
    assert limiter.power_w(activity, mhz=1000.0, data="zeros") == pytest.approx(0.75 + 1.0)


def test_zeros_in_memory_draw_less_too() -> None:
    spec = replace(TOY, hbm_zeros_fraction=0.25)
    drawn = [PowerLimiter(spec).power_w(work(hbm_gb=1e3), mhz=1000.0, data=data) for data in ("random", "zeros")]
    assert drawn == pytest.approx([1.0, 0.25])


@pytest.mark.parametrize(("follows", "l2_cycles"), [(0.0, 2.0), (1.0, 1.0), (0.5, 2.0**0.5)])
def test_l2_keeps_its_own_clock_or_follows(follows: float, l2_cycles: float) -> None:
    """At half the clock an SM cycle has two of L2's, one, or what lies between."""
    limiter = PowerLimiter(replace(TOY, l2_clock_coupling_fraction=follows))
    assert limiter.l2_cycles(500.0) == pytest.approx(l2_cycles)
    assert limiter.l2_cycles(1000.0) == 1.0


def test_max_asks_for_no_power() -> None:
    assert clock(work(gflops=1e9), mode="max") == TOY.max_mhz


def test_another_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="'boost' is no mode, wants max, single, sustained"):
        clock(work(), mode="boost")


@given(
    gflops=st.floats(0, 1e8),
    hbm_gb=st.floats(0, 1e8),
    more=st.floats(0, 1e8),
    slope=st.sampled_from((0.0, 0.5, 1.0)),
    mode=st.sampled_from(("single", "sustained")),
)
def test_more_work_in_the_same_cycles_never_runs_faster(
    gflops: float, hbm_gb: float, more: float, slope: float, mode: str
) -> None:
    spec = replace(TOY, voltage_slope=slope, single_power_w=1500.0, idle_power_w=100.0)
    before = clock(work(gflops=gflops, hbm_gb=hbm_gb), spec, mode=mode)
    assert clock(work(gflops=gflops + more, hbm_gb=hbm_gb), spec, mode=mode) <= before
    assert clock(work(gflops=gflops, hbm_gb=hbm_gb + more), spec, mode=mode) <= before
    assert spec.min_mhz <= before <= spec.max_mhz
    limits = {"single": 1500.0, "sustained": 1000.0}
    if before > spec.min_mhz * 1.001:
        drawn = PowerLimiter(spec).power_w(work(gflops=gflops, hbm_gb=hbm_gb), mhz=before, data="random")
        assert drawn <= limits[mode]
