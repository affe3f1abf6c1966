"""CUDA toolkit and driver programs of the bench: nvcc builds cubins, nvidia-smi describes the GPU.

In: a case. Out: its cubin for an architecture, built once per source; the properties and state of this GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import ConfigError
from gpusim.evidence.cases.case import Case, kernel_folder, kernel_path
from gpusim.evidence.cases.measured_gpu import MeasuredGpu
from gpusim.evidence.cases.rows import replace_file

FOLDERS = {"NVIDIA H200": "h200_sxm", "NVIDIA H100 80GB HBM3": "h100_sxm", "NVIDIA H100 PCIe": "h100_pcie",
           "NVIDIA A100-SXM4-40GB": "a100_sxm_40gb", "NVIDIA A100-SXM4-80GB": "a100_sxm_80gb"}  # fmt: skip
"""Folders of a GPU's rows, by the driver's name for it. The folder is named as the description in ``configs/``."""

STATE = {
    "clocks.sm": "sm_clock_mhz", "clocks.mem": "memory_clock_mhz", "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.max.mem": "max_memory_clock_mhz", "power.draw": "power_w", "power.limit": "power_limit_w",
    "temperature.gpu": "temperature_c",
}  # fmt: skip
"""Fields of nvidia-smi with their names here; the driver has no field for the L2 clock."""

ASK_S = 60.0
"""Seconds that nvidia-smi may take."""


ATTRIBUTES = {"num_sms": 16, "smem_per_sm_bytes": 81, "smem_per_cta_bytes": 97}
"""Values of ``CUdevice_attribute``, by what they say. Source: cuda.h 13.0."""


@dataclass(frozen=True, slots=True)
class GpuFound:
    """GPU that is measured, as the driver names it."""

    name: str
    capability: tuple[int, int]
    driver: str
    uuid: str = ""
    """Identifier of the individual GPU; empty where it is unknown."""

    @property
    def folder(self) -> str:
        """Folder of its rows under ``validation/measured``.

        >>> GpuFound("NVIDIA H200", (9, 0), "580").folder, GpuFound("NVIDIA L40S", (8, 9), "580").folder
        ('h200_sxm', 'nvidia_l40s')
        """
        return FOLDERS.get(self.name, re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_"))

    @property
    def arch(self) -> str:
        """Architecture that nvcc builds for.

        >>> GpuFound("NVIDIA H200", (9, 0), "580").arch, GpuFound("NVIDIA A100-SXM4-40GB", (8, 0), "580").arch
        ('sm_90a', 'sm_80')
        """
        return arch_of(self.capability)


def arch_of(capability: tuple[int, int]) -> str:
    """Architecture with all instructions of a compute capability.

    >>> arch_of((9, 0))
    'sm_90a'
    """
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def capability_of(arch: str) -> tuple[int, int]:
    """Compute capability of an architecture.

    >>> capability_of("sm_90a"), capability_of("sm_80")
    ((9, 0), (8, 0))

    Raises:
        ConfigError: there is no such architecture.
    """
    digits = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if digits is None:
        raise ConfigError(f"architecture {arch!r} is none, wants for example sm_80 or sm_90a")
    return int(digits[1]), int(digits[2])


def find_gpu() -> GpuFound:
    """First GPU that this process may use.

    Raises:
        ConfigError: there is no driver, or no GPU.
    """
    name, capability, driver, uuid = _ask_smi(("name", "compute_cap", "driver_version", "uuid"))
    major, _, minor = capability.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise ConfigError(f"nvidia-smi: compute capability {capability!r} is none, wants a driver from 2021 (R470) or later")
    return GpuFound(name, (int(major), int(minor)), driver, uuid)


def sizes_of(gpu: GpuFound) -> MeasuredGpu:
    """SMs and shared memory of the first GPU that this process may use, as the driver reports them.

    Raises:
        ConfigError: the driver does not say.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ConfigError(f"measure: the driver cannot be asked for SMs ({error}), wants libcuda.so.1 of it") from None
    device, found = ctypes.c_int(), {}
    statuses = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0)]
    for name, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        statuses.append(cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
        found[name] = value.value
    if any(statuses):
        raise ConfigError(f"measure: the driver does not say how many SMs there are (status {max(statuses)}), wants a GPU")
    return MeasuredGpu(capability=gpu.capability, **found)


def gpu_state() -> dict[str, float]:
    """State of the GPU: clocks in MHz, power in W, temperature in degrees C. Values that the driver lacks are left out."""
    answers = zip(STATE.values(), _ask_smi(tuple(STATE)), strict=True)
    return {name: float(text) for name, text in answers if re.fullmatch(r"\d+(\.\d+)?", text)}


def _ask_smi(fields: Sequence[str]) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise ConfigError("measure: no GPU here (nvidia-smi is missing), wants a machine with an NVIDIA GPU and its driver")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", visible]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ASK_S)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"measure: nvidia-smi did not answer in {ASK_S:.0f} seconds, wants a GPU that works") from None
    lines = done.stdout.strip().splitlines()
    answers = [text.strip() for text in lines[0].split(",")] if lines else []
    if done.returncode or len(answers) != len(fields):
        reason = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
        raise ConfigError(f"measure: no GPU answers nvidia-smi ({reason}), wants an NVIDIA GPU that is visible here")
    return answers


# ---------------------------------------------------------------------------------------------- building
@dataclass(frozen=True, slots=True)
class Cubin:
    """Kernel built for an architecture."""

    path: Path
    source_hash: str
    """SHA-256 of ``kernel.cu`` and the files that it includes, twelve digits."""
    compiler: str
    """Release of nvcc that built it."""


def default_build_dir() -> Path:
    """Folder for cubins: ``gpusim/cubins`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusim" / "cubins"


def source_hash(case: Case) -> str:
    """SHA-256 over all sources of the case's kernel, twelve digits."""
    digest = hashlib.sha256((kernel_folder(case.name) / "kernel.cu").read_bytes())
    for name, text in sorted(case.includes().items()):
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()[:12]


def build(case: Case, arch: str, folder: Path | None = None) -> Cubin:
    """Cubin of a case for ``arch``; built if there is none yet.

    Raises:
        ConfigError: there is no nvcc, or it refuses the source.
    """
    folder = folder or default_build_dir()
    digest = source_hash(case)
    cubin = folder / f"{case.name}-{arch}-{digest}.cubin"
    note = cubin.with_suffix(".txt")
    if not (cubin.exists() and note.exists()):
        nvcc = find_nvcc()
        folder.mkdir(parents=True, exist_ok=True)
        _compile(nvcc, case, arch, cubin)
        replace_file(note, nvcc_release(nvcc))
    return Cubin(cubin, digest, note.read_text(encoding="utf-8"))


USUAL_PLACES = ("/usr/local/cuda/bin",)


def find_program(name: str, *folders: str) -> str | None:
    """Path of a CUDA toolkit program: on the PATH, below CUDA_HOME, in its usual folder, or in NVIDIA's Python packages.

    ``folders`` are searched last.
    """
    places = [f"{os.environ[key]}/bin" for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    packages = importlib.util.find_spec("nvidia")
    roots = packages.submodule_search_locations if packages is not None else None
    wheels = [str(path) for root in roots or () for path in sorted(Path(root).glob("cu*/bin"), reverse=True)]
    paths = (shutil.which(name, path=place) for place in (None, *places, *USUAL_PLACES, *wheels, *folders))
    return next((path for path in paths if path), None)


def find_nvcc() -> str:
    """Path of nvcc, see :func:`find_program`.

    Raises:
        ConfigError: it is not installed.
    """
    path = find_program("nvcc")
    if path is None:
        raise ConfigError(
            "measure: no nvcc on the PATH, wants the CUDA toolkit, pip install -e '.[nvcc]' in the checkout, or cubins "
            "built elsewhere (--build-only --build-dir DIR)"
        )
    return path


def nvcc_release(nvcc: str) -> str:
    """Release of a compiler, for example 13.0.88."""
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return release[1] if release else "unknown"


def _compile(nvcc: str, case: Case, arch: str, cubin: Path) -> None:
    number = arch.removeprefix("sm_")
    partial = cubin.with_name(f".{os.getpid()}.{cubin.name}")
    includes = cubin.with_suffix("")
    includes.mkdir(exist_ok=True)
    for name, text in case.includes().items():
        replace_file(includes / name, text)
    command = [nvcc, "-std=c++17", "-cubin", f"-gencode=arch=compute_{number},code=sm_{number}", f"-I{includes}"]
    command += [str(kernel_folder(case.name) / "kernel.cu"), "-o", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
            first = next((line for line in errors if "error" in line or "fatal" in line), errors[-1])
            raise ConfigError(f"nvcc refuses {kernel_path(case.name)}/kernel.cu for {arch}: {first.strip()}")
        if "C75" in done.stderr:
            raise ConfigError(f"nvcc changes the wgmma of {kernel_path(case.name)}/kernel.cu: {done.stderr.splitlines()[0]}")
        partial.replace(cubin)
    finally:
        partial.unlink(missing_ok=True)
        for name in case.includes():
            (includes / name).unlink(missing_ok=True)
        includes.rmdir()
