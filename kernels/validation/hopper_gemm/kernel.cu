// D[m, n] = A[m, k] B[n, k]^T on tensor cores: TMA brings the operands, wgmma multiplies, bf16 leaves. Rows of A and B are contiguous
// along k, rows of D along n.
//
// `shapes.inc` is written by case.py: one struct for each width and type of wgmma, and the entry points. What an entry point fixes:
// tile, schedule, warpgroups that multiply, cluster, groups of wgmma left in flight, setmaxnreg. What a launch says (Plan): sizes,
// stages of the ring, order of tiles, parts of k, way of D out.
//
// The ring: a stage holds kM rows of A and kN of B, kK elements of each, in panels of 128 bytes (swizzle 128B). Barrier `full`: the
// copies are there. Barrier `empty`: all that multiply have read it, in every CTA that a copy of this one goes to.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(16) unsigned char dynamic[];

constexpr uint32_t kMostStages = 6;
constexpr uint32_t kPatience = 1u << 18;  // tries of a wait, of which each takes its time; then something is broken
constexpr uint32_t kPanelBytes = 128, kWarpgroup = 128;

enum Schedule { kMultistage, kSpecialized, kPingpong };
enum Way { kDirect, kRows, kBoxes };    // of D out: from registers; rows by threads; boxes by TMA
enum Parts { kWhole, kAdded, kApart };  // of k: one; added up here; left to add_parts

struct Plan {
    uint32_t m, n;
    uint32_t num_m, num_n, num_tiles;  // tiles along m and n, rounded up to clusters; times parts of k
    uint32_t num_steps;                // of k, of all parts
    uint32_t num_parts, parts;
    uint32_t num_stages, is_refilled_late;
    uint32_t walks_along_n, group;     // the walk over tiles: bands of so many clusters
    uint32_t way, slice_n, staging_at, is_overlay;
};

// ---------------------------------------------------------------------------------------------- instructions

__device__ __forceinline__ uint32_t shared_address(const void *pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ __forceinline__ bool is_elected() {
    uint32_t is_chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_chosen)::"memory");
    return is_chosen;
}

__device__ __forceinline__ void init(uint32_t barrier, uint32_t num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
}

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done = 0;
#pragma unroll 1
    for (uint32_t tries = 0; tries < kPatience; ++tries) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
        if (is_done) return;
    }
    __trap();
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_at(uint32_t barrier, uint32_t rank) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

__device__ __forceinline__ void expect(uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

__device__ __forceinline__ void load_box(uint32_t to, const void *map, uint32_t column, uint32_t row, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map),
        "r"(column), "r"(row), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void load_box(uint32_t to, const void *map, uint32_t column, uint32_t row, uint32_t barrier, uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::
            "r"(to), "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(ranks)
        : "memory");
}

__device__ __forceinline__ void store_box(const void *map, uint32_t column, uint32_t row, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(column), "r"(row), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void prefetch(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

__device__ __forceinline__ void meet(uint32_t barrier, uint32_t num_threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

template <int kDepth>
__device__ __forceinline__ void wait_wgmma() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kDepth) : "memory");
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// An operand's descriptor: the low word has its start, here of what lies `offset` bytes behind; the high word 1024 bytes from eight rows to
// the next, and swizzle 128B.
__device__ __forceinline__ uint32_t descriptor_low(uint32_t address) { return address >> 4 | 1u << 16; }
__device__ __forceinline__ uint64_t descriptor(uint32_t low, uint32_t offset) {
    return static_cast<uint64_t>(1u << 30 | 64u) << 32 | (low + (offset >> 4));
}

// ---------------------------------------------------------------------------------------------- what an entry point is

template <template <int> class Wgmma_, int kM_, int kN_, int kStepBytes_, Schedule kSchedule_, int kGroups_, int kClusterM_, int kClusterN_,
          int kDepth_, int kProducerRegisters_, int kConsumerRegisters_>
struct Shape {
    static constexpr int kM = kM_, kN = kN_, kGroups = kGroups_, kDepth = kDepth_;
    static constexpr Schedule kSchedule = kSchedule_;
    static constexpr int kClusterM = kClusterM_, kClusterN = kClusterN_, kRanks = kClusterM * kClusterN;
    static constexpr int kProducerRegisters = kProducerRegisters_, kConsumerRegisters = kConsumerRegisters_;  // 0: as launched
    static constexpr int kPanels = kStepBytes_ / 128;
    static constexpr int kElementsPerPanel = 128 / Wgmma_<kN_>::kBytes;
    static constexpr int kElementsPerStep = kPanels * kElementsPerPanel;
    static constexpr int kThreads = (kGroups + (kSchedule == kMultistage ? 0 : 1)) * kWarpgroup;
    static constexpr int kShareM = kSchedule == kPingpong ? kM : kM / kGroups;  // rows of a warpgroup
    static constexpr int kBlocks = kShareM / 64;
    static constexpr uint32_t kABytes = kM * kPanelBytes * kPanels, kBBytes = kN * kPanelBytes * kPanels, kStageBytes = kABytes + kBBytes;
    // Those that write D out together: all, or a warpgroup.
    static constexpr bool kIsOneTeam = kSchedule == kMultistage;
    static constexpr int kTeamRows = kIsOneTeam ? kM : kShareM, kTeamThreads = kIsOneTeam ? kThreads : kWarpgroup;
    using Wgmma = Wgmma_<kN_>;
};

struct Tile {
    uint32_t m, n, part;
};

struct Ring {
    uint32_t at, full, empty;  // in shared memory: stages, barriers
};

struct Position {
    uint32_t stage, parity;
    __device__ __forceinline__ void step(uint32_t num_stages) {
        if (++stage == num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Tiles of a cluster are neighbours; bands of `group` clusters are walked along, across first; parts of k come last.
template <class S>
__device__ __forceinline__ Tile tile_of(const Plan &plan, uint32_t idx) {
    const uint32_t rank = idx % S::kRanks, clusters_m = plan.num_m / S::kClusterM, clusters_n = plan.num_n / S::kClusterN;
    uint32_t cluster = idx / S::kRanks;
    const uint32_t part = cluster / (clusters_m * clusters_n);
    cluster -= part * (clusters_m * clusters_n);
    const uint32_t num_across = plan.walks_along_n ? clusters_m : clusters_n, num_along = plan.walks_along_n ? clusters_n : clusters_m;
    const uint32_t group = min(plan.group, num_across), band = cluster / (group * num_along), within = cluster - band * (group * num_along);
    const uint32_t width = min(group, num_across - band * group), along = within / width, across = band * group + within - along * width;
    const uint32_t cluster_m = plan.walks_along_n ? across : along, cluster_n = plan.walks_along_n ? along : across;
    return {cluster_m * S::kClusterM + rank % S::kClusterM, cluster_n * S::kClusterN + rank / S::kClusterM, part};
}

__device__ __forceinline__ uint32_t first_step(const Plan &plan, uint32_t part) { return part * plan.num_steps / plan.num_parts; }

template <class S>
__device__ __forceinline__ void load_step(const Ring &ring, uint32_t stage, const void *map_a, const void *map_b, const Tile &tile, uint32_t step) {
    const uint32_t full = ring.full + stage * 8, a = ring.at + stage * S::kStageBytes, b = a + S::kABytes;
    expect(full, S::kStageBytes);
    if constexpr (S::kRanks == 1) {
#pragma unroll
        for (int panel = 0; panel < S::kPanels; ++panel)
            load_box(a + panel * S::kM * kPanelBytes, map_a, step * S::kElementsPerStep + panel * S::kElementsPerPanel, tile.m * S::kM, full);
#pragma unroll
        for (int panel = 0; panel < S::kPanels; ++panel)
            load_box(b + panel * S::kN * kPanelBytes, map_b, step * S::kElementsPerStep + panel * S::kElementsPerPanel, tile.n * S::kN, full);
    } else {  // A is shared along n, B along m: each CTA brings its part of the rows to all
        constexpr uint32_t kRowsA = S::kM / S::kClusterN, kRowsB = S::kN / S::kClusterM;
        const uint32_t rank_m = tile.m % S::kClusterM, rank_n = tile.n % S::kClusterN;
        uint32_t same_a = 0;
#pragma unroll
        for (int other = 0; other < S::kClusterN; ++other) same_a |= 1u << (other * S::kClusterM + rank_m);
        const uint32_t same_b = ((1u << S::kClusterM) - 1) << (rank_n * S::kClusterM);
#pragma unroll
        for (int panel = 0; panel < S::kPanels; ++panel) {
            const uint32_t column = step * S::kElementsPerStep + panel * S::kElementsPerPanel, row = rank_n * kRowsA;
            const uint32_t to = a + (panel * S::kM + row) * kPanelBytes;
            if constexpr (S::kClusterN > 1)
                load_box(to, map_a, column, tile.m * S::kM + row, full, same_a);
            else
                load_box(to, map_a, column, tile.m * S::kM, full);
        }
#pragma unroll
        for (int panel = 0; panel < S::kPanels; ++panel) {
            const uint32_t column = step * S::kElementsPerStep + panel * S::kElementsPerPanel, row = rank_m * kRowsB;
            const uint32_t to = b + (panel * S::kN + row) * kPanelBytes;
            if constexpr (S::kClusterM > 1)
                load_box(to, map_b, column, tile.n * S::kN + row, full, same_b);
            else
                load_box(to, map_b, column, tile.n * S::kN, full);
        }
    }
}

template <class S>
using Sums = float[S::kBlocks][S::kN / 2];

// A stage's products as one group of wgmma; the first of a tile takes no sums.
template <class S>
__device__ __forceinline__ void multiply(Sums<S> &sums, uint32_t a, uint32_t b, bool is_first) {
    const uint32_t a_low = descriptor_low(a), b_low = descriptor_low(b);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel)
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int block = 0; block < S::kBlocks; ++block)
                S::Wgmma::issue(sums[block], descriptor(a_low, (panel * S::kM + block * 64) * kPanelBytes + step * 32),
                                descriptor(b_low, panel * S::kN * kPanelBytes + step * 32), !(is_first && panel == 0 && step == 0));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// ---------------------------------------------------------------------------------------------- D

struct Team {
    uint32_t barrier, thread;     // of those that write out together: named barrier, thread among them
    uint32_t first_row;           // of what they write, in the tile
    uint32_t group_row;           // of the warpgroup's share, in what they write
    uint32_t staging, flag;       // in shared memory: their room, their word
    uint32_t idx;
};

template <class S>
__device__ __forceinline__ void meet(const Team &team) {
    meet(team.barrier, S::kTeamThreads);
}

// Calls do(sum pair, row, column) of all that lies inside: rows of the matrix, columns of the tile.
template <class S, class Do>
__device__ __forceinline__ void each_pair(Sums<S> &sums, uint32_t row, uint32_t num_rows, uint32_t num_columns, const Do &act) {
    const uint32_t lane_column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
        for (int j = 0; j < S::kN / 8; ++j) {
            if (j * 8 >= num_columns) break;
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (block * 64 + half * 8 + row < num_rows)
                    act(sums[block][4 * j + 2 * half], sums[block][4 * j + 2 * half + 1], row + block * 64 + half * 8, j * 8 + lane_column);
        }
}

template <class S>
__device__ __forceinline__ void store_direct(Sums<S> &sums, const Plan &plan, const Tile &tile, uint32_t row, uint32_t num_columns, uint16_t *d) {
    uint16_t *corner = d + tile.n * S::kN;
    each_pair<S>(sums, row, plan.m, num_columns, [&](float &low, float &high, uint32_t at, uint32_t column) {
        asm volatile("st.global.b32 [%0], %1;" ::"l"(corner + static_cast<uint64_t>(at) * plan.n + column), "r"(pack(low, high)) : "memory");
    });
}

// Slice by slice of columns: wait until the room is free, write it, meet, let it go.
template <class S>
__device__ __forceinline__ void store_staged(Sums<S> &sums, const Plan &plan, const Tile &tile, const Team &team, uint32_t turn,
                                             uint32_t num_columns, uint16_t *d, const void *map_d) {
    const uint32_t lane = threadIdx.x % 32, row = team.group_row + threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
    const uint32_t first_row = tile.m * S::kM + team.first_row, panels_per_slice = plan.slice_n / 64;
    const bool is_boxed = plan.way == kBoxes, is_at_once = turn == 0 && (!plan.is_overlay || (S::kGroups > 1 && !S::kIsOneTeam));
    uint32_t in_slice = 0;
#pragma unroll
    for (int panel = 0; panel < S::kN / 64; ++panel) {
        if (panel * 64 >= num_columns && in_slice == 0) break;
        if (in_slice == 0) {
            if (is_boxed && team.thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            if (panel || !is_at_once) meet<S>(team);
        }
        const uint32_t to = team.staging + (in_slice * S::kTeamRows + row) * kPanelBytes;
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t at = to + block * 64 * kPanelBytes + ((j * 2 + lane / 16) ^ row % 8) * 16;
                const float *sum = &sums[block][(panel * 4 + j) * 8];
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(pack(sum[0], sum[1])),
                             "r"(pack(sum[2], sum[3])), "r"(pack(sum[4], sum[5])), "r"(pack(sum[6], sum[7]))
                             : "memory");
            }
        if (++in_slice != panels_per_slice) continue;
        in_slice = 0;
        const uint32_t first_column = tile.n * S::kN + (panel + 1) * 64 - plan.slice_n;
        if (is_boxed) {
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            meet<S>(team);
            if (team.thread == 0) {
#pragma unroll 1
                for (uint32_t box = 0; box < panels_per_slice; ++box)
                    store_box(map_d, first_column + box * 64, first_row, team.staging + box * S::kTeamRows * kPanelBytes);
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
            __syncwarp();
            continue;
        }
        meet<S>(team);
        const uint32_t chunks_per_row = plan.slice_n / 8, shift = __ffs(chunks_per_row) - 1, rows_per_pass = S::kTeamThreads >> shift;
        const uint32_t chunk = team.thread & (chunks_per_row - 1), begin_row = team.thread >> shift, column = first_column + chunk * 8;
        const uint32_t from = team.staging + chunk / 8 * S::kTeamRows * kPanelBytes;
#pragma unroll 1
        for (uint32_t pass = begin_row; pass < S::kTeamRows; pass += 4 * rows_per_pass) {
            uint4 words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t r = pass + i * rows_per_pass, at = from + r * kPanelBytes + (chunk % 8 ^ r % 8) * 16;
                asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(words[i].x), "=r"(words[i].y), "=r"(words[i].z), "=r"(words[i].w) : "r"(at) : "memory");
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t r = first_row + pass + i * rows_per_pass;
                if (r < plan.m && column < plan.n)
                    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(d + static_cast<uint64_t>(r) * plan.n + column),
                                 "r"(words[i].x), "r"(words[i].y), "r"(words[i].z), "r"(words[i].w)
                                 : "memory");
            }
        }
    }
}

// Parts of k: sums added up in memory, of which the last part makes D and leaves zeros; or left for a second kernel.
template <class S>
__device__ __forceinline__ void store_part(Sums<S> &sums, const Plan &plan, const Tile &tile, const Team &team, uint32_t row,
                                           uint32_t num_columns, uint16_t *d, float *room, uint32_t *counters) {
    const bool is_apart = plan.parts == kApart;
    float *corner = room + (is_apart ? static_cast<uint64_t>(tile.part) * plan.m * plan.n : 0) + tile.n * S::kN;
    if (is_apart) {
        each_pair<S>(sums, row, plan.m, num_columns, [&](float &low, float &high, uint32_t at, uint32_t column) {
            asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(corner + static_cast<uint64_t>(at) * plan.n + column), "f"(low), "f"(high)
                         : "memory");
        });
        return;
    }
    each_pair<S>(sums, row, plan.m, num_columns, [&](float &low, float &high, uint32_t at, uint32_t column) {
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(corner + static_cast<uint64_t>(at) * plan.n + column),
                     "f"(low), "f"(high)
                     : "memory");
    });
    __threadfence();
    meet<S>(team);
    if (team.thread == 0) {
        uint32_t *counter = counters + (tile.m * plan.num_n + tile.n) * (S::kIsOneTeam ? 1 : S::kGroups) + team.idx;
        const uint32_t before = atomicAdd(counter, 1u);
        if (before == plan.num_parts - 1) *counter = 0;  // for the next launch
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(team.flag), "r"(before) : "memory");
    }
    meet<S>(team);
    uint32_t before;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(before) : "r"(team.flag) : "memory");
    if (before != plan.num_parts - 1) return;
    __threadfence();
    each_pair<S>(sums, row, plan.m, num_columns, [&](float &low, float &high, uint32_t at, uint32_t column) {
        asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high)
                     : "l"(corner + static_cast<uint64_t>(at) * plan.n + column) : "memory");
    });
    each_pair<S>(sums, row, plan.m, num_columns, [&](float &, float &, uint32_t at, uint32_t column) {
        asm volatile("st.global.v2.f32 [%0], {%1, %1};" ::"l"(corner + static_cast<uint64_t>(at) * plan.n + column), "f"(0.0f) : "memory");
    });
    store_direct<S>(sums, plan, tile, row, num_columns, d);
}

template <class S>
__device__ __forceinline__ void store(Sums<S> &sums, const Plan &plan, const Tile &tile, const Team &team, uint32_t turn, uint16_t *d,
                                      const void *map_d, float *room, uint32_t *counters) {
    if (plan.is_overlay && !S::kIsOneTeam && S::kGroups > 1) meet(1 + S::kGroups, S::kGroups * kWarpgroup);  // nobody reads the stages any more
    if (tile.m * S::kM + team.first_row >= plan.m || tile.n * S::kN >= plan.n) return;
    const uint32_t row = tile.m * S::kM + team.first_row + team.group_row + threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4;
    const uint32_t num_columns = min(static_cast<uint32_t>(S::kN), plan.n - tile.n * S::kN);
    if (plan.num_parts > 1)
        store_part<S>(sums, plan, tile, team, row, num_columns, d, room, counters);
    else if (plan.way == kDirect)
        store_direct<S>(sums, plan, tile, row, num_columns, d);
    else
        store_staged<S>(sums, plan, tile, team, turn, num_columns, d, map_d);
}

// ---------------------------------------------------------------------------------------------- programs

template <class S>
__device__ __forceinline__ void meet_all() {
    if constexpr (S::kRanks > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    } else {
        __syncthreads();
    }
}

template <class S>
__device__ __forceinline__ void produce(const Plan &plan, const Ring &ring, const void *map_a, const void *map_b) {
    Position at = {0, 1};
#pragma unroll 1
    for (uint32_t idx = blockIdx.x; idx < plan.num_tiles; idx += gridDim.x) {
        const Tile tile = tile_of<S>(plan, idx);
        const uint32_t end = first_step(plan, tile.part + 1);
#pragma unroll 1
        for (uint32_t step = first_step(plan, tile.part); step < end; ++step) {
            wait(ring.empty + at.stage * 8, at.parity);
            load_step<S>(ring, at.stage, map_a, map_b, tile, step);
            at.step(plan.num_stages);
        }
    }
}

// Gives a stage back to every CTA that writes into it: one arrival of a warpgroup at each.
template <class S>
__device__ __forceinline__ void give_back(const Ring &ring, uint32_t stage) {
    if constexpr (S::kRanks == 1) {
        if (threadIdx.x % kWarpgroup == 0) arrive(ring.empty + stage * 8);
    } else {
        if (threadIdx.x % kWarpgroup < S::kRanks) arrive_at(ring.empty + stage * 8, threadIdx.x % kWarpgroup);
    }
    __syncwarp();
}

template <class S>
__device__ __forceinline__ void consume(const Plan &plan, const Ring &ring, uint32_t turns, const Team &team, uint32_t idx, uint16_t *d,
                                        const void *map_d, float *room, uint32_t *counters) {
    constexpr bool kIsPingpong = S::kSchedule == kPingpong;
    Sums<S> sums;
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
        for (int i = 0; i < S::kN / 2; ++i) sums[block][i] = 0.0f;
    const uint32_t share = kIsPingpong ? 0 : idx * S::kShareM * kPanelBytes, math_turn = turns, epilogue_turn = turns + 16;
    Position at = {0, 0};
    uint32_t turn = kIsPingpong ? idx : 0;
#pragma unroll 1
    for (uint32_t work = blockIdx.x + turn * gridDim.x; work < plan.num_tiles; work += (kIsPingpong ? 2 : 1) * gridDim.x) {
        const Tile tile = tile_of<S>(plan, work);
        const uint32_t num_steps = first_step(plan, tile.part + 1) - first_step(plan, tile.part);
        const uint32_t parity = (turn / 2 & 1) ^ (idx == 0);
        if constexpr (kIsPingpong) {
            wait(math_turn + idx * 8, parity);
            const uint32_t rounds = turn * num_steps / plan.num_stages;
            at = {turn * num_steps - rounds * plan.num_stages, rounds & 1};
        }
        uint32_t held = at.stage;  // the oldest stage that has not been given back
#pragma unroll 1
        for (uint32_t step = 0; step < num_steps; ++step) {
            wait(ring.full + at.stage * 8, at.parity);
            const uint32_t a = ring.at + at.stage * S::kStageBytes;
            multiply<S>(sums, a + share, a + S::kABytes, step == 0);
            wait_wgmma<S::kDepth>();
            if (step >= S::kDepth) {
                give_back<S>(ring, held);
                if (++held == plan.num_stages) held = 0;
            }
            at.step(plan.num_stages);
        }
        if constexpr (kIsPingpong) {
            if (threadIdx.x % kWarpgroup == 0) arrive(math_turn + (1 - idx) * 8);
            __syncwarp();
        }
        wait_wgmma<0>();
        if constexpr (S::kDepth > 0) give_back<S>(ring, held);
        if constexpr (kIsPingpong) wait(epilogue_turn + idx * 8, parity);
        store<S>(sums, plan, tile, team, turn, d, map_d, room, counters);
        if constexpr (kIsPingpong) {
            __syncwarp();
            if (threadIdx.x % kWarpgroup == 0) arrive(epilogue_turn + (1 - idx) * 8);
            __syncwarp();
        }
        turn += kIsPingpong ? 2 : 1;
    }
}

// Those that multiply load, too: all wait for a stage, thread 0 refills one that all have left.
template <class S>
__device__ __forceinline__ void multiply_and_load(const Plan &plan, const Ring &ring, const Team &team, uint32_t idx, const void *map_a,
                                                  const void *map_b, uint16_t *d, const void *map_d, float *room, uint32_t *counters) {
    Sums<S> sums;
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
        for (int i = 0; i < S::kN / 2; ++i) sums[block][i] = 0.0f;
    const bool is_ring = plan.num_stages > 1, is_late = plan.is_refilled_late;
    const bool is_loader = threadIdx.x / 32 == 0 && is_elected();
    // Steps ahead: of a ring of s stages s - 1, or with groups in flight fewer where the refill comes before the wait.
    const uint32_t held = is_late ? max(1, S::kDepth) : 1 + S::kDepth, ahead = plan.num_stages > held ? plan.num_stages - held : 1;
    Position at = {0, 0}, to = {0, 0};
    uint32_t turn = 0;
#pragma unroll 1
    for (uint32_t work = blockIdx.x; work < plan.num_tiles; work += gridDim.x, ++turn) {
        const Tile tile = tile_of<S>(plan, work);
        const uint32_t begin = first_step(plan, tile.part), num_steps = first_step(plan, tile.part + 1) - begin;
        uint32_t next = 0;
        const auto refill = [&]() {
            if (next < num_steps) {
                if (is_loader) load_step<S>(ring, to.stage, map_a, map_b, tile, begin + next);
                ++next;
                to.step(plan.num_stages);
            }
            __syncwarp();
        };
        if (turn) __syncthreads();  // all have left the ring and the staging room
#pragma unroll 1
        for (uint32_t i = 0; is_ring && i < ahead; ++i) refill();
#pragma unroll 1
        for (uint32_t step = 0; step < num_steps; ++step) {
            if (!is_ring) refill();
            wait(ring.full + at.stage * 8, at.parity);
            __syncthreads();
            const uint32_t a = ring.at + at.stage * S::kStageBytes;
            multiply<S>(sums, a + idx * S::kShareM * kPanelBytes, a + S::kABytes, step == 0);
            if (is_ring && !is_late) refill();
            wait_wgmma<S::kDepth>();
            if (!is_ring || is_late) __syncthreads();
            if (is_ring && is_late) refill();
            at.step(plan.num_stages);
        }
        wait_wgmma<0>();
        store<S>(sums, plan, tile, team, turn, d, map_d, room, counters);
    }
}

template <class S>
__device__ __forceinline__ void run(const Plan &plan, const void *map_a, const void *map_b, const void *map_d, uint16_t *d, float *room,
                                    uint32_t *counters) {
    __shared__ __align__(8) uint64_t full[kMostStages], empty[kMostStages], turn_of[4];
    __shared__ uint32_t flags[4];
    const uint32_t base = (shared_address(dynamic) + 1023) & ~1023u;
    const Ring ring = {base, shared_address(full), shared_address(empty)};
    const uint32_t turns = shared_address(turn_of);
    const uint32_t group = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0), warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    constexpr bool kHasProducer = S::kSchedule != kMultistage;
    if (warp == 0 && is_elected()) {
        for (uint32_t stage = 0; stage < plan.num_stages; ++stage) {
            init(ring.full + stage * 8, 1);
            init(ring.empty + stage * 8, (S::kSchedule == kPingpong ? 1 : S::kGroups) * S::kRanks);
        }
        for (uint32_t i = 0; i < 4; ++i) init(turns + i * 8, 1);
        if (S::kRanks > 1) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        prefetch(map_a);
        prefetch(map_b);
    }
    __syncwarp();
    meet_all<S>();
    if (kHasProducer && group == 0) {
        if constexpr (S::kProducerRegisters > 0) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::kProducerRegisters > 0 ? S::kProducerRegisters : 24));
        if (warp == 0) {
            if (is_elected()) produce<S>(plan, ring, map_a, map_b);
            __syncwarp();
        }
    } else {
        if constexpr (S::kConsumerRegisters > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::kConsumerRegisters > 0 ? S::kConsumerRegisters : 24));
        const uint32_t idx = group - (kHasProducer ? 1 : 0);
        const uint32_t slot = S::kTeamRows * plan.slice_n * 2;
        const Team team = S::kIsOneTeam
            ? Team{0, threadIdx.x, 0, idx * S::kShareM, base + plan.staging_at, shared_address(flags), 0}
            : Team{1 + idx, threadIdx.x % kWarpgroup, S::kSchedule == kPingpong ? 0 : idx * S::kShareM, 0,
                   base + plan.staging_at + idx * slot, shared_address(flags + idx), idx};
        if constexpr (kHasProducer)
            consume<S>(plan, ring, turns, team, idx, d, map_d, room, counters);
        else
            multiply_and_load<S>(plan, ring, team, idx, map_a, map_b, d, map_d, room, counters);
        if (plan.way == kBoxes && team.thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __syncwarp();
    }
    if constexpr (S::kRanks > 1) meet_all<S>();  // a CTA stays until nobody writes into it or arrives at its barriers
}

#define HOPPER_GEMM_AS(attribute, name, ...)                                                                                           \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads, 1) attribute                                                   \
        name(const __grid_constant__ Plan plan, const void *map_a, const void *map_b, const void *map_d, uint16_t *d, float *room,      \
             uint32_t *counters) {                                                                                                      \
        run<__VA_ARGS__>(plan, map_a, map_b, map_d, d, room, counters);                                                                 \
    }
#define HOPPER_GEMM(name, ...) HOPPER_GEMM_AS(, name, __VA_ARGS__)
#define HOPPER_GEMM_CLUSTER(name, ...) HOPPER_GEMM_AS(__cluster_dims__(__VA_ARGS__::kRanks, 1, 1), name, __VA_ARGS__)

#include "shapes.inc"

// The second kernel of a product in parts: a thread adds four neighbouring elements of all parts.
extern "C" __global__ void __launch_bounds__(256) add_parts(const float4 *room, uint2 *d, uint32_t num_vectors, uint32_t num_parts) {
    const uint32_t idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= num_vectors) return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (uint32_t part = 0; part < num_parts; ++part) {
        const float4 more = room[static_cast<uint64_t>(part) * num_vectors + idx];
        sum.x += more.x;
        sum.y += more.y;
        sum.z += more.z;
        sum.w += more.w;
    }
    d[idx] = make_uint2(pack(sum.x, sum.y), pack(sum.z, sum.w));
}

#endif
