"""Parser for the names of cuBLAS GEMM kernels: tile, stages, cluster, how warpgroups share a tile.

In: a kernel's name from a profiler. Out: a :class:`NamedKernel`, or None for an unknown name.

A library is column-major: it computes D^T = B^T A^T, so that its M is the caller's N. This module uses the library's order.

Models:

* nvjet (cuBLAS 12.6 and later on Hopper)
* xmma, cutlass 2 and ampere kernels of cuBLAS, on tensor cores and on FMA units
* kernels that add parts of K

Ignores:

* names of other families: gemv, dot and magma kernels
* properties that a name does not have: which warps load, in which order tiles are walked

Source: names that profilers show. NVIDIA/cutlass, issue 1025 explains those of CUTLASS 2. That nvjet's pairs are tile, K and
stages, cluster agrees with its shared memory. The meaning of its letters is a reading, not a document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

NVJET = re.compile(
    r"\bnvjet(?:_sm\d+)?_(?P<types>[a-z]+)_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x(?P<stages>\d+)_(?P<ranks_m>\d+)x(?P<ranks_n>\d+)"
    r"(?:_2cta)?_(?P<raster>[hv])(?P<rest>(?:_[A-Za-z0-9]+)*?)_(?P<layout>[NT]{3,4})\b"
)
XMMA = re.compile(
    r"\bsm(?P<arch>\d+)_xmma_gemm_\w+?_(?P<layout>[tn]{2})_[tn]_tilesize(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"(?:_stage(?P<stages>\d+))?_warp(?P<kind>group)?size(?P<warps_m>\d+)x(?P<warps_n>\d+)x\d+"
)
XMMA_ALIGN = re.compile(r"_aligna(?P<align>\d+)")
CUTLASS = re.compile(
    r"\bcutlass_(?P<arch>\d+)_(?:wmma_)?(?P<unit>tensorop|simt)_\w+?_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x(?P<stages>\d+)"
    r"_(?P<layout>[tn]{2})(?:_align(?P<align>\d+))?"
)
AMPERE = re.compile(
    r"\bampere_\w+?gemm_\w+?_(?P<m>\d+)x(?P<n>\d+)_(?:sliced\d+x\d+_)?\w*?stages_(?P<k>\d+)x(?P<stages>\d+)_(?P<layout>[tn]{2})"
)
SGEMM = re.compile(
    r"\b(?:ampere|turing|volta|maxwell)_sgemm_(?P<m>\d+)x(?P<n>\d+)_(?:sliced\d+x\d+_)?(?P<layout>[tn]{2})\b"
)
SGEMM_K = 8
"""Elements of K of a k-step of these kernels. Their names have none."""

REDUCTIONS = ("splitKreduce", "splitk_reduce", "reduceSplitK")
"""Parts of the names of kernels that add parts of K."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedKernel:
    """Properties in a kernel's name; None where the name has none."""

    family: str
    tile: tuple[int, int, int]
    """Tile extents M, N, K of the library, whose M is the caller's N."""
    stages: int | None = None
    cluster: tuple[int, int] = (1, 1)
    """CTAs of a cluster along the library's M and N."""
    is_wgmma: bool = False
    is_fma: bool = False
    """Whether FMA units multiply, in fp32."""
    warps: tuple[int, int] | None = None
    """Warps along the library's M and N, where the name has them."""
    alignment: int | None = None
    """Elements to which rows of the operands are aligned, where the name has them."""
    cooperates_along: str | None = None
    """Dimension ``m`` or ``n`` along which two warpgroups split a tile; None where they do not."""
    walks_along: str | None = None
    """Dimension ``m`` or ``n`` along which consecutive tiles are neighbours; None where unknown."""
    is_split_k: bool = False
    layout: str = ""
    """Letters of A and B: ``t`` or ``n``, whether the library transposes its operands."""

    @property
    def turned(self) -> NamedKernel:
        """Kernel with M and N exchanged.

        >>> kernel = NamedKernel(family="nvjet", tile=(168, 128, 64), cluster=(2, 1), cooperates_along="n", walks_along="m")
        >>> kernel.turned.tile, kernel.turned.cluster, kernel.turned.cooperates_along, kernel.turned.walks_along
        ((128, 168, 64), (1, 2), 'm', 'n')
        """
        other = {"m": "n", "n": "m", None: None}
        return replace(
            self, tile=(self.tile[1], self.tile[0], self.tile[2]), cluster=(self.cluster[1], self.cluster[0]),
            warps=None if self.warps is None else (self.warps[1], self.warps[0]),
            cooperates_along=other[self.cooperates_along], walks_along=other[self.walks_along],
        )  # fmt: skip


def parse_name(name: str) -> NamedKernel | None:
    """Properties in ``name``; None where the family is unknown.

    >>> kernel = parse_name("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN")
    >>> kernel.tile, kernel.stages, kernel.cluster, kernel.cooperates_along, kernel.walks_along
    ((128, 256, 64), 4, (2, 1), 'm', 'm')
    >>> kernel = parse_name("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nn_align1>(Params)")
    >>> kernel.tile, kernel.stages, kernel.is_fma, kernel.alignment
    ((128, 256, 8), 4, True, 1)
    >>> parse_name("gemv2T_kernel_val") is None
    True
    """
    if found := NVJET.search(name):
        words = found["rest"].split("_")
        halves = {"coopA": "m", "coopB": "n"}
        return NamedKernel(
            family="nvjet", tile=_tile(found), stages=int(found["stages"]),
            cluster=(int(found["ranks_m"]), int(found["ranks_n"])), is_wgmma=True,
            cooperates_along=next((halves[word] for word in words if word in halves), None),
            walks_along={"h": "n", "v": "m"}[found["raster"]], is_split_k=any(word.lower() == "splitk" for word in words),
            layout=found["layout"][:2].lower(),
        )  # fmt: skip
    is_split = "splitk" in name.lower()
    if found := XMMA.search(name):
        stages = int(found["stages"]) if found["stages"] else None
        is_wgmma = found["kind"] is not None
        along = "m" if is_wgmma and int(found["warps_m"]) > 1 else "n" if is_wgmma and int(found["warps_n"]) > 1 else None
        aligned = XMMA_ALIGN.search(name)
        return NamedKernel(
            family="xmma", tile=_tile(found), stages=stages, is_wgmma=is_wgmma, cooperates_along=along, is_split_k=is_split,
            is_fma="_ffma" in name, warps=None if is_wgmma else (int(found["warps_m"]), int(found["warps_n"])),
            alignment=int(aligned["align"]) if aligned else None, layout=found["layout"],
        )  # fmt: skip
    if found := CUTLASS.search(name):
        return NamedKernel(
            family="cutlass", tile=_tile(found), stages=int(found["stages"]), is_split_k=is_split,
            is_fma=found["unit"] == "simt", alignment=int(found["align"]) if found["align"] else None,
            layout=found["layout"],
        )  # fmt: skip
    if found := AMPERE.search(name):
        stages = int(found["stages"])
        return NamedKernel(
            family="ampere", tile=_tile(found), stages=stages, is_split_k=is_split, layout=found["layout"]
        )
    if found := SGEMM.search(name):
        tile = int(found["m"]), int(found["n"]), SGEMM_K
        return NamedKernel(family="sgemm", tile=tile, is_fma=True, is_split_k=is_split, layout=found["layout"])
    return None


def is_reduction(name: str) -> bool:
    """Whether a kernel adds split-K parts of another kernel.

    >>> is_reduction("void cublasLt::splitKreduce_kernel<"), is_reduction("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT")
    (True, False)
    """
    return any(word in name for word in REDUCTIONS)


def _tile(found: re.Match[str]) -> tuple[int, int, int]:
    return int(found["m"]), int(found["n"]), int(found["k"])
