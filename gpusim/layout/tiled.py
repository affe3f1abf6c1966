"""Tiled copies and tiled MMAs: atoms distributed over a tile, as thread-value layouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, cast

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import coalesce, complement, composition, filter, left_inverse, right_inverse
from gpusim.layout.divide import logical_divide, logical_product, raked_product, tiled_product, zipped_divide
from gpusim.layout.int_tuple import IntTuple, show
from gpusim.layout.layout import Layout, append, make_layout, size, zip_layout
from gpusim.layout.recast import recast_layout, upcast
from gpusim.layout.tiling import Tensor, make_tensor

# Copies


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyAtomTV:
    """Thread-value layouts of a copy instruction: CuTe's ``Copy_Atom``, in elements.

    * ``src``, ``dst``: layouts from (thread, value) to the element that is read or written.
    * ``ref``: layout whose threads a tiled copy refers to: the one in registers for ldmatrix; ``src`` by default.
    * ``thr_id``: layout from the atom's threads to lanes.

    >>> ldmatrix_x4 = CopyAtomTV.from_bits(
    ...     src=Layout((32, 128), (128, 1)),
    ...     dst=Layout((32, (32, 4)), (32, (1, 1024))),
    ...     ref=Layout((32, (32, 4)), (32, (1, 1024))),
    ...     element_bits=16,
    ... )
    >>> print(ldmatrix_x4.src, ldmatrix_x4.dst)
    (32,8):(8,1) (32,(2,4)):(2,(1,64))

    Raises:
        LayoutError: layouts that are no (thread, value) pairs for the same number of threads.
    """

    src: Layout
    dst: Layout
    ref: Layout = field(default=None)  # type: ignore[assignment]  # __post_init__ sets src
    thr_id: Layout = field(default=None)  # type: ignore[assignment]  # __post_init__ sets 0, 1, 2, ...

    def __post_init__(self) -> None:
        if self.ref is None:
            object.__setattr__(self, "ref", self.src)
        if self.thr_id is None:
            object.__setattr__(self, "thr_id", Layout(size(self.ref, 0)))
        for name, layout in (("src", self.src), ("dst", self.dst), ("ref", self.ref)):
            if layout.rank != 2 or size(layout, 0) != self.thr_id.size:
                raise LayoutError(
                    f"copy atom: {name} {layout} is no layout of ({self.thr_id.size} threads, values): use rank 2"
                )

    @classmethod
    def from_bits(cls, *, src: Layout, dst: Layout, ref: Layout | None = None, element_bits: int) -> Self:
        """An atom from layouts in bits, as in CuTe's ``Copy_Traits``."""
        reference = src if ref is None else ref
        parts = [recast_layout(layout, 1, element_bits) for layout in (src, dst, reference)]
        return cls(src=parts[0], dst=parts[1], ref=parts[2])

    @classmethod
    def vector(cls, num_elements: int) -> Self:
        """One thread that copies a vector: ``ld``, ``st``, ``cp.async``; CuTe's ``UniversalCopy``.

        >>> print(CopyAtomTV.vector(8).src)
        (1,8):(0,1)
        """
        layout = Layout((1, num_elements), (0, 1))
        return cls(src=layout, dst=layout)


@dataclass(frozen=True, slots=True)
class TiledCopy:
    """A copy atom repeated by ``layout_tv``, which maps (thread, value) to a position in a tile of shape ``tiler``.

    >>> copy = make_tiled_copy(CopyAtomTV.vector(8), Layout((16, 8), (8, 1)), Layout((1, 8)))
    >>> print(copy.layout_tv, copy.tiler)
    ((8,16),8):((128,1),16) (16, 64)
    >>> print(copy.get_slice(9).partition_S(Tensor(Layout((128, 64), (64, 1)))))
    72 o ((8,1),8,1):((1,0),1024,0)

    Raises:
        LayoutError: fewer threads or values than the atom needs.
    """

    atom: CopyAtomTV
    layout_tv: Layout
    tiler: Any

    def __post_init__(self) -> None:
        for mode, name in enumerate(("threads", "values")):
            have, need = size(self.layout_tv, mode), size(self.atom.ref, mode)
            if have % need:
                raise LayoutError(f"tiled copy: {have} {name} do not divide into atoms of {need}: use a multiple")

    @property
    def num_threads(self) -> int:
        """Number of threads that copy together."""
        return size(self.layout_tv, 0)

    def tidfrg_s(self, layout: Any) -> Any:
        """A source (M,N,...) as (thread, (values of an atom, atoms), (RestM,RestN,...)); CuTe's ``tidfrg_S``."""
        return self._tidfrg(layout, self.atom.src)

    def tidfrg_d(self, layout: Any) -> Any:
        """A destination (M,N,...) as (thread, (values of an atom, atoms), (RestM,RestN,...)); CuTe's ``tidfrg_D``."""
        return self._tidfrg(layout, self.atom.dst)

    def _tidfrg(self, layout: Any, target: Layout) -> Any:
        if it.rank(layout.shape) < it.rank(self.tiler):
            raise LayoutError(f"tiled copy: {layout} has fewer modes than the tiler {show_shape(self.tiler)}: use as many")
        return self._tile_to_thrfrg(zipped_divide(layout, self.tiler), target)

    def _tile_to_thrfrg(self, tiled: Any, target: Layout) -> Any:
        ref_to_target = composition(right_inverse(self.atom.ref), target)
        atoms = zipped_divide(self.layout_tv, (size(self.atom.ref, 0), size(self.atom.ref, 1)))
        thrval = coalesce(zip_layout(composition(atoms, (ref_to_target, None))), (1, (1, 1)))
        return unpack(composition(tiled, (thrval, None)))

    def layout_s_tv(self) -> Layout:
        """Layout from (thread, value) to a position in the tile, for the source; CuTe's ``get_layoutS_TV``."""
        return self._layout_tv(self.atom.src)

    def layout_d_tv(self) -> Layout:
        """Layout from (thread, value) to a position in the tile, for the destination; CuTe's ``get_layoutD_TV``."""
        return self._layout_tv(self.atom.dst)

    def _layout_tv(self, target: Layout) -> Layout:
        tile = Layout(tiler_shape(self.tiler))
        whole = make_layout(tile, Layout(1, 0))
        return cast("Layout", self._tile_to_thrfrg(whole, target)(None, None, 0))

    def get_slice(self, thr_idx: int) -> ThrCopy:
        """The part of thread ``thr_idx``.

        Raises:
            LayoutError: there is no such thread.
        """
        if not 0 <= thr_idx < self.num_threads:
            raise LayoutError(f"tiled copy: no thread {thr_idx}: use 0 to {self.num_threads - 1}")
        return ThrCopy(self, thr_idx)

    def retile(self, layout: Layout) -> Layout:
        """A fragment that an MMA partitioned, (V,M,N), in this copy's order of values."""
        values = size(layout, 0)
        inverse = cast("Layout", right_inverse(self.layout_tv)).with_shape(tiler_shape(self.tiler))
        frag_mn = upcast(inverse, self.num_threads * values)
        repeats = logical_product(Layout(values), right_inverse(frag_mn))
        frag_v = zipped_divide(repeats, Layout(size(self.atom.ref, 1)))
        tiled = zipped_divide(layout, (values, *it.product_each(frag_mn.shape)))
        picked = composition(tiled, (frag_v, None))
        return cast("Layout", picked(None, it.pad((0,), layout.rank, None)))


@dataclass(frozen=True, slots=True)
class ThrCopy:
    """One thread's part of a tiled copy.

    >>> copy = make_tiled_copy(CopyAtomTV.vector(4), Layout((8, 4), (4, 1)), Layout((1, 4)))
    >>> print(copy.get_slice(5).partition_D(Tensor(Layout((16, 16), (16, 1)))))
    20 o ((4,1),2,1):((1,0),128,0)
    """

    tiled: TiledCopy
    thr_idx: int

    def partition_S(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """Elements that this thread reads: ((values, atoms), RestM, RestN, ...)."""
        return self._partition(tensor, self.tiled.tidfrg_s)

    def partition_D(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """Elements that this thread writes: ((values, atoms), RestM, RestN, ...)."""
        return self._partition(tensor, self.tiled.tidfrg_d)

    def _partition(self, tensor: Any, tidfrg: Callable[[Any], Any]) -> Tensor:
        whole = as_tensor(tensor)
        parts = tidfrg(whole)
        return cast("Tensor", parts(self.thr_idx, None, it.repeat(whole.rank, None)))

    def retile_S(self, layout: Layout) -> Layout:  # noqa: N802 - CuTe's name
        """An MMA's fragment in the order in which this copy reads it."""
        return self.tiled.retile(layout)

    def retile_D(self, layout: Layout) -> Layout:  # noqa: N802 - CuTe's name
        """An MMA's fragment in the order in which this copy writes it."""
        return self.tiled.retile(layout)


def make_tiled_copy(
    atom: CopyAtomTV, thr_layout: Layout, val_layout: Layout = Layout(1)  # noqa: B008 - layouts are frozen
) -> TiledCopy:
    """A tiled copy from the layouts of threads, (m,n) to thread, and of each thread's values, (m,n) to value.

    >>> print(make_tiled_copy(CopyAtomTV.vector(2), Layout((4, 8), (8, 1)), Layout((1, 2))).layout_tv)
    ((8,4),2):((8,1),4)
    """
    layout_mn = raked_product(thr_layout, val_layout)
    inverse = cast("Layout", right_inverse(layout_mn))
    return TiledCopy(atom, inverse.with_shape(thr_layout.size, val_layout.size), it.product_each(layout_mn.shape))


def make_tiled_copy_A(atom: CopyAtomTV, mma: TiledMma) -> TiledCopy:  # noqa: N802 - CuTe's name
    """A tiled copy in which each thread has the elements of A (m x k) that it holds in ``mma``.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> print(make_tiled_copy_A(CopyAtomTV.vector(2), TiledMma(mma_sync(BF16).tv)).tiler)
    (16, 16)
    """
    return TiledCopy(atom, mma.layout_a_tv(), (mma.tile_size(0), mma.tile_size(2)))


def make_tiled_copy_B(atom: CopyAtomTV, mma: TiledMma) -> TiledCopy:  # noqa: N802 - CuTe's name
    """A tiled copy in which each thread has the elements of B (n x k) that it holds in ``mma``.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> print(make_tiled_copy_B(CopyAtomTV.vector(2), TiledMma(mma_sync(BF16).tv)).tiler)
    (8, 16)
    """
    return TiledCopy(atom, mma.layout_b_tv(), (mma.tile_size(1), mma.tile_size(2)))


def make_tiled_copy_C(atom: CopyAtomTV, mma: TiledMma) -> TiledCopy:  # noqa: N802 - CuTe's name
    """A tiled copy in which each thread has the elements of C (m x n) that it holds in ``mma``.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> print(make_tiled_copy_C(CopyAtomTV.vector(2), TiledMma(mma_sync(BF16).tv)).layout_tv)
    ((4,8),((2,2),(1,1))):((32,1),((16,8),(0,0)))
    """
    return TiledCopy(atom, mma.layout_c_tv(), (mma.tile_size(0), mma.tile_size(1)))


def make_tiled_copy_S(atom: CopyAtomTV, tiled: TiledCopy) -> TiledCopy:  # noqa: N802 - CuTe's name
    """A tiled copy of ``atom`` in the source order of ``tiled``.

    >>> copy = make_tiled_copy(CopyAtomTV.vector(4), Layout((8, 4), (4, 1)), Layout((1, 4)))
    >>> print(make_tiled_copy_S(CopyAtomTV.vector(2), copy).layout_tv)
    ((4,8),(4,1)):((32,1),(8,0))
    """
    return TiledCopy(atom, tiled.layout_s_tv(), tiled.tiler)


def make_tiled_copy_D(atom: CopyAtomTV, tiled: TiledCopy) -> TiledCopy:  # noqa: N802 - CuTe's name
    """A tiled copy of ``atom`` in the destination order of ``tiled``.

    >>> copy = make_tiled_copy(CopyAtomTV.vector(4), Layout((8, 4), (4, 1)), Layout((1, 4)))
    >>> print(make_tiled_copy_D(CopyAtomTV.vector(2), copy).layout_tv)
    ((4,8),(4,1)):((32,1),(8,0))
    """
    return TiledCopy(atom, tiled.layout_d_tv(), tiled.tiler)


def make_cotiled_copy(atom: CopyAtomTV, atom_tv_layout: Layout, data_layout: Layout) -> TiledCopy:
    """A tiled copy from a layout of (thread, value) to *offsets* of ``data_layout``.

    >>> copy = make_cotiled_copy(CopyAtomTV.vector(4), Layout((32, 4), (4, 1)), Layout((16, 32), (32, 1)))
    >>> print(copy.layout_tv, copy.tiler[1])
    ((8,4),4):((4,1),32) (8,4):(4,1)

    Raises:
        LayoutError: offsets that ``data_layout`` does not have.
    """
    inverse = make_layout(left_inverse(data_layout), Layout(1, 0))
    layout_tv_data = composition(inverse, atom_tv_layout)
    reached = composition(make_layout(data_layout, Layout(1, 0)), layout_tv_data[1])
    if coalesce(reached) != coalesce(atom_tv_layout[1]):
        raise LayoutError(f"cotiled copy: {data_layout} lacks offsets of {atom_tv_layout}: use offsets that it has")
    shape = it.product_each(data_layout.shape)
    tiler = tuple(filter(composition(_one_mode(shape, i), layout_tv_data)) for i in range(len(shape)))
    tile_to_data = composition(Layout(shape), tiler)
    return TiledCopy(atom, composition(left_inverse(tile_to_data), layout_tv_data), tiler)


def _one_mode(shape: tuple[int, ...], mode: int) -> Layout:
    return Layout(shape, tuple(int(i == mode) for i in range(len(shape))))


# MMAs


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaAtomTV:
    """Thread-value layouts of an MMA instruction: CuTe's ``MMA_Atom``.

    ``a``, ``b`` and ``c`` map (thread, value) to a position in the m x k, n x k and m x n operand, column-major. ``thr_id``
    maps the atom's threads to lanes.

    >>> one_each = Layout((4, 1), (1, 0))
    >>> MmaAtomTV(shape_mnk=(2, 2, 2), a=one_each, b=one_each, c=one_each, thr_id=Layout(4)).c(3, 0)
    3

    Raises:
        LayoutError: layouts that are no (thread, value) pairs for the same number of threads.
    """

    shape_mnk: tuple[int, int, int]
    a: Layout
    b: Layout
    c: Layout
    thr_id: Layout

    def __post_init__(self) -> None:
        for name, layout in (("a", self.a), ("b", self.b), ("c", self.c)):
            if layout.rank != 2 or size(layout, 0) != self.thr_id.size:
                raise LayoutError(
                    f"MMA atom: {name} {layout} is no layout of ({self.thr_id.size} threads, values): use rank 2"
                )


@dataclass(frozen=True, slots=True)
class TiledMma:
    """An MMA atom repeated over threads by ``atom_layout_mnk``, and over the tile by ``permutation_mnk``.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> mma = TiledMma(mma_sync(BF16).tv, Layout((2, 2, 1)))
    >>> print(mma.thr_layout_vmnk, mma.tile_shape)
    (32,2,2,1):(1,32,64,0) (32, 16, 16)
    >>> print(mma.layout_c_tv())
    ((4,8,2,2),((2,2),(1,1))):((64,1,16,256),((32,8),(0,0)))
    >>> print(mma.get_slice(33).partition_C(Tensor(Layout((64, 32), (32, 1)))))
    514 o ((2,2),2,2):((1,256),1024,16)

    Raises:
        LayoutError: the layout of atoms does not have three modes.
    """

    atom: MmaAtomTV
    atom_layout_mnk: Layout = Layout((1, 1, 1))  # noqa: RUF009 - frozen
    permutation_mnk: tuple[Any, Any, Any] = (None, None, None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "atom_layout_mnk", append(self.atom_layout_mnk, rank=3))
        object.__setattr__(self, "permutation_mnk", it.pad(tuple(self.permutation_mnk), 3, None))

    @property
    def thr_layout_vmnk(self) -> Layout:
        """Layout from (thread of an atom, atom in m, in n, in k) to a thread."""
        return tiled_product(self.atom.thr_id, self.atom_layout_mnk)

    @property
    def num_threads(self) -> int:
        """Number of threads that execute an MMA together."""
        return self.thr_layout_vmnk.size

    def permutation(self, mode: int) -> Any:
        """Tiler of m (0), n (1) or k (2) that is applied before the atoms."""
        given = self.permutation_mnk[mode]
        return self.atom.shape_mnk[mode] * size(self.thr_layout_vmnk, mode + 1) if given is None else given

    def tile_size(self, mode: int) -> int:
        """Size of the tile in m (0), n (1) or k (2)."""
        return size(self.permutation(mode))

    @property
    def tile_shape(self) -> tuple[int, int, int]:
        """Size of the tile: (m, n, k)."""
        return self.tile_size(0), self.tile_size(1), self.tile_size(2)

    def thrfrg_a(self, layout: Any) -> Any:
        """A (m x k) as ((ThrV,(ThrM,ThrK)),(FrgV,(RestM,RestK,...)))."""
        return self._thrfrg(layout, 0, 2, self.atom.a)

    def thrfrg_b(self, layout: Any) -> Any:
        """B (n x k) as ((ThrV,(ThrN,ThrK)),(FrgV,(RestN,RestK,...)))."""
        return self._thrfrg(layout, 1, 2, self.atom.b)

    def thrfrg_c(self, layout: Any) -> Any:
        """C (m x n) as ((ThrV,(ThrM,ThrN)),(FrgV,(RestM,RestN,...)))."""
        return self._thrfrg(layout, 0, 1, self.atom.c)

    def _thrfrg(self, layout: Any, first: int, second: int, atom_tv: Layout) -> Any:
        if it.rank(layout.shape) < 2:
            raise LayoutError(f"tiled MMA: {layout} has one mode: use two or more")
        atoms, threads = self.atom.shape_mnk, self.thr_layout_vmnk
        permuted = logical_divide(layout, (self.permutation(first), self.permutation(second)))
        tiled = zipped_divide(permuted, (Layout(atoms[first]), Layout(atoms[second])))
        tv = composition(tiled, (atom_tv, None))
        spread = (None, (Layout(size(threads, first + 1)), Layout(size(threads, second + 1))))
        return zipped_divide(tv, spread)

    def layout_a_tv(self) -> Layout:
        """Layout from (thread, value) to a position in the tile of A; CuTe's ``get_layoutA_TV``."""
        threads = self.thr_layout_vmnk
        same_for_n = Layout((size(threads, 1), size(threads, 2)), (1, 0))
        parts = self.thrfrg_a(Layout((self.tile_size(0), self.tile_size(2))))
        return self._by_thread(composition(parts, ((None, (same_for_n, None)), None)))

    def layout_b_tv(self) -> Layout:
        """Layout from (thread, value) to a position in the tile of B; CuTe's ``get_layoutB_TV``."""
        threads = self.thr_layout_vmnk
        same_for_m = Layout((size(threads, 1), size(threads, 2)), (0, 1))
        parts = self.thrfrg_b(Layout((self.tile_size(1), self.tile_size(2))))
        return self._by_thread(composition(parts, ((None, (same_for_m, None)), None)))

    def layout_c_tv(self) -> Layout:
        """Layout from (thread, value) to a position in the tile of C; CuTe's ``get_layoutC_TV``."""
        return self._by_thread(self.thrfrg_c(Layout((self.tile_size(0), self.tile_size(1)))))

    def _by_thread(self, parts: Layout) -> Layout:
        threads = self.thr_layout_vmnk
        to_vmnk = right_inverse(make_layout(threads, complement(threads)))
        ordered = composition(Layout((threads.size, 1), (1, 0)), to_vmnk)
        return cast("Layout", composition(parts, (ordered, None)))

    def get_slice(self, thr_idx: int) -> ThrMma:
        """The part of thread ``thr_idx``.

        Raises:
            LayoutError: there is no such thread (CuTe wraps around).
        """
        threads = self.thr_layout_vmnk
        if not 0 <= thr_idx < threads.cosize:
            raise LayoutError(f"tiled MMA: no thread {thr_idx}: use 0 to {threads.cosize - 1}")
        return ThrMma(self, cast("tuple[int, ...]", threads.get_flat_coord(thr_idx)))


@dataclass(frozen=True, slots=True)
class ThrMma:
    """One thread's part of a tiled MMA; ``vmnk`` is its coordinate in ``thr_layout_vmnk``.

    >>> from gpusim.workload.atoms import mma_sync
    >>> from gpusim.workload.dtypes import BF16
    >>> share = TiledMma(mma_sync(BF16).tv, Layout((2, 2, 1))).get_slice(33)
    >>> share.vmnk, print(share.partition_A(Tensor(Layout((32, 16), (16, 1)))))
    258 o ((2,2,2),1,1):((1,128,8),0,0)
    ((1, 1, 0, 0), None)
    """

    tiled: TiledMma
    vmnk: tuple[int, ...]

    def partition_A(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """This thread's part of A: (values, RestM, RestK, ...)."""
        return self._partition(tensor, self.tiled.thrfrg_a, 1, 3)

    def partition_B(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """This thread's part of B: (values, RestN, RestK, ...)."""
        return self._partition(tensor, self.tiled.thrfrg_b, 2, 3)

    def partition_C(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """This thread's part of C: (values, RestM, RestN, ...)."""
        return self._partition(tensor, self.tiled.thrfrg_c, 1, 2)

    def _partition(self, tensor: Any, thrfrg: Callable[[Any], Any], first: int, second: int) -> Tensor:
        whole = as_tensor(tensor)
        parts = thrfrg(whole)
        place = (self.vmnk[0], (self.vmnk[first], self.vmnk[second]))
        rest = it.repeat(it.rank(it.get(parts.inner.shape, 1, 1)), None)
        return cast("Tensor", parts(place, (None, rest)))


SM80_16x8x16 = MmaAtomTV(
    shape_mnk=(16, 8, 16), a=Layout(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128))),
    b=Layout(((4, 8), (2, 2)), ((16, 1), (8, 64))), c=Layout(((4, 8), (2, 2)), ((32, 1), (16, 8))), thr_id=Layout(32),
)
"""Instruction mma.sync.m16n8k16 of 16-bit operands, like CuTe's SM80_16x8x16. Source: PTX ISA 8.x, section on
mma.m16n8k16."""


# Shared


def as_tensor(tensor: Any) -> Tensor:
    """The argument as a tensor; a layout starts at offset 0."""
    return tensor if isinstance(tensor, Tensor) else make_tensor(0, tensor)


def tiler_shape(tiler: Any) -> IntTuple:
    """The shape of a tiler. A layout in it counts by its shape."""
    if isinstance(tiler, tuple):
        return tuple(tiler_shape(part) for part in tiler)
    return tiler.shape if isinstance(tiler, Layout) else cast("int", tiler)


def show_shape(tiler: Any) -> str:
    """A tiler's shape in CuTe's notation."""
    return show(tiler_shape(tiler))


def unpack(tiled: Any) -> Any:
    """((thread, value), rest) as (thread, value, rest)."""
    return tiled((None, None), None)
