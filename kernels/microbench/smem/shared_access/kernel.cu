// One shared-memory access of one warp: how many wavefronts does it take?
//
// A kernel for each instruction. Lanes find their addresses in the constant bank and nothing else touches shared memory,
// so that a profiler's count is the access's own. The mode asks for more, to check the answer in another launch of the same
// code: 1 fills the buffer before the access, 2 copies it to `dump` after it.

#include <cstdint>

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kBufferBytes = 32768;
constexpr uint32_t kFill = 1, kDump = 2;

struct Lanes {
    uint32_t address[32];  // bytes from the buffer's start
};

// What the fill writes: a word of its own at every place.
__device__ __forceinline__ uint32_t word_at(uint32_t address) { return (address >> 2) * 0x9E3779B1u + 0x7F4A7C15u; }

// What a lane stores: words that differ between lanes, so that no add becomes a count of lanes.
__device__ __forceinline__ uint32_t value_of(uint32_t word) { return (4 * threadIdx.x + word) * 0x85EBCA6Bu + 0xC2B2AE35u; }

__device__ __forceinline__ uint64_t pair(uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; }

__device__ __forceinline__ uint32_t start() { return static_cast<uint32_t>(__cvta_generic_to_shared(buffer)); }

__device__ __forceinline__ void fill(uint32_t mode) {
    if (mode & kFill) {
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < kBufferBytes; at += 512)
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(start() + at), "r"(word_at(at)), "r"(word_at(at + 4)),
                         "r"(word_at(at + 8)), "r"(word_at(at + 12))
                         : "memory");
    }
    __syncwarp();
}

__device__ __forceinline__ void keep(uint32_t mode, uint4 *dump) {
    __syncwarp();
    if (mode & kDump) {
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < kBufferBytes; at += 512) {
            uint4 v;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(start() + at)
                         : "memory");
            dump[at / 16] = v;
        }
    }
}

#define KERNEL(name)                                                                                       \
    extern "C" __global__ void __launch_bounds__(32)                                                       \
        name(const __grid_constant__ Lanes lanes, uint32_t mask, uint32_t mode, uint4 *out, uint4 *dump)

#define BEGIN                                                                                              \
    const uint32_t a = start() + lanes.address[threadIdx.x];                                               \
    [[maybe_unused]] const bool is_active = mask >> threadIdx.x & 1

#define LOAD(name, ptx, type, constraint)                                                                  \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        type v = 0;                                                                                        \
        fill(mode);                                                                                        \
        if (is_active) asm volatile(ptx " %0, [%1];" : "=" constraint(v) : "r"(a) : "memory");             \
        const uint64_t wide = v;                                                                           \
        out[threadIdx.x] = make_uint4(static_cast<uint32_t>(wide), static_cast<uint32_t>(wide >> 32), 0, 0); \
    }

LOAD(ld_shared_b8, "ld.shared.u8", uint32_t, "r")
LOAD(ld_shared_b16, "ld.shared.u16", uint16_t, "h")
LOAD(ld_shared_b32, "ld.shared.u32", uint32_t, "r")
LOAD(ld_shared_b64, "ld.shared.u64", uint64_t, "l")

KERNEL(ld_shared_b128) {
    BEGIN;
    uint4 v = make_uint4(0, 0, 0, 0);
    fill(mode);
    if (is_active)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(a)
                     : "memory");
    out[threadIdx.x] = v;
}

#define STORE(name, ptx, type, constraint)                                                                 \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        const type v = static_cast<type>(pair(value_of(0), value_of(1)));                                  \
        if (is_active) asm volatile(ptx " [%0], %1;" ::"r"(a), constraint(v) : "memory");                  \
        keep(mode, dump);                                                                                  \
    }

STORE(st_shared_b8, "st.shared.u8", uint32_t, "r")
STORE(st_shared_b16, "st.shared.u16", uint16_t, "h")
STORE(st_shared_b32, "st.shared.u32", uint32_t, "r")
STORE(st_shared_b64, "st.shared.u64", uint64_t, "l")

KERNEL(st_shared_b128) {
    BEGIN;
    if (is_active)
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(value_of(0)), "r"(value_of(1)), "r"(value_of(2)),
                     "r"(value_of(3))
                     : "memory");
    keep(mode, dump);
}

#define LDMATRIX1(name, trans)                                                                             \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        uint4 v = make_uint4(0, 0, 0, 0);                                                          \
        fill(mode);                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 {%0}, [%1];" : "=r"(v.x) : "r"(a) : "memory"); \
        out[threadIdx.x] = v;                                                                              \
    }
#define LDMATRIX2(name, trans)                                                                             \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        uint4 v = make_uint4(0, 0, 0, 0);                                                          \
        fill(mode);                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0, %1}, [%2];"                   \
                     : "=r"(v.x), "=r"(v.y) : "r"(a) : "memory");                                          \
        out[threadIdx.x] = v;                                                                              \
    }
#define LDMATRIX4(name, trans)                                                                             \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        uint4 v = make_uint4(0, 0, 0, 0);                                                          \
        fill(mode);                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0, %1, %2, %3}, [%4];"           \
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");                    \
        out[threadIdx.x] = v;                                                                              \
    }

LDMATRIX1(ldmatrix_x1, "")
LDMATRIX2(ldmatrix_x2, "")
LDMATRIX4(ldmatrix_x4, "")
LDMATRIX1(ldmatrix_x1_trans, ".trans")
LDMATRIX2(ldmatrix_x2_trans, ".trans")
LDMATRIX4(ldmatrix_x4_trans, ".trans")

#if __CUDA_ARCH__ >= 900
#define STMATRIX(name, ptx, ...)                                                                           \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        asm volatile(ptx ::"r"(a), __VA_ARGS__ : "memory");                         \
        keep(mode, dump);                                                                                  \
    }
#define V(k) "r"(value_of(k))
#define STMATRIX1(name, trans) STMATRIX(name, "stmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 [%0], {%1};", V(0))
#define STMATRIX2(name, trans) STMATRIX(name, "stmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 [%0], {%1, %2};", V(0), V(1))
#define STMATRIX4(name, trans)                                                                             \
    STMATRIX(name, "stmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 [%0], {%1, %2, %3, %4};", V(0), V(1), V(2), V(3))
STMATRIX1(stmatrix_x1, "")
STMATRIX2(stmatrix_x2, "")
STMATRIX4(stmatrix_x4, "")
STMATRIX1(stmatrix_x1_trans, ".trans")
STMATRIX2(stmatrix_x2_trans, ".trans")
STMATRIX4(stmatrix_x4_trans, ".trans")
#endif

// The old value comes back, and where it is compared, it is compared with what the fill wrote: the first lane on a word wins.
#define ATOM(name, ptx, type, constraint)                                                                  \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        const type v = static_cast<type>(pair(value_of(0), value_of(1)));                                  \
        type old = 0;                                                                                      \
        fill(mode);                                                                                        \
        if (is_active) asm volatile(ptx " %0, [%1], %2;" : "=" constraint(old) : "r"(a), constraint(v) : "memory"); \
        const uint64_t wide = old;                                                                         \
        out[threadIdx.x] = make_uint4(static_cast<uint32_t>(wide), static_cast<uint32_t>(wide >> 32), 0, 0); \
        keep(mode, dump);                                                                                  \
    }
#define CAS(name, ptx, type, constraint)                                                                   \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        const uint32_t at = lanes.address[threadIdx.x];                                                    \
        const type v = static_cast<type>(pair(value_of(0), value_of(1)));                                  \
        const type was = static_cast<type>(pair(word_at(at), word_at(at + 4)));                            \
        type old = 0;                                                                                      \
        fill(mode);                                                                                        \
        if (is_active)                                                                                     \
            asm volatile(ptx " %0, [%1], %2, %3;"                                                          \
                         : "=" constraint(old) : "r"(a), constraint(was), constraint(v) : "memory");       \
        const uint64_t wide = old;                                                                         \
        out[threadIdx.x] = make_uint4(static_cast<uint32_t>(wide), static_cast<uint32_t>(wide >> 32), 0, 0); \
        keep(mode, dump);                                                                                  \
    }
#define RED(name, ptx, type, constraint)                                                                   \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        const type v = static_cast<type>(pair(value_of(0), value_of(1)));                                  \
        fill(mode);                                                                                        \
        if (is_active) asm volatile(ptx " [%0], %1;" ::"r"(a), constraint(v) : "memory");                  \
        keep(mode, dump);                                                                                  \
    }

ATOM(atom_shared_add_b32, "atom.shared.add.u32", uint32_t, "r")
ATOM(atom_shared_min_b32, "atom.shared.min.u32", uint32_t, "r")
ATOM(atom_shared_max_b32, "atom.shared.max.u32", uint32_t, "r")
ATOM(atom_shared_and_b32, "atom.shared.and.b32", uint32_t, "r")
ATOM(atom_shared_or_b32, "atom.shared.or.b32", uint32_t, "r")
ATOM(atom_shared_xor_b32, "atom.shared.xor.b32", uint32_t, "r")
ATOM(atom_shared_exch_b32, "atom.shared.exch.b32", uint32_t, "r")
CAS(atom_shared_cas_b32, "atom.shared.cas.b32", uint32_t, "r")
ATOM(atom_shared_add_b64, "atom.shared.add.u64", uint64_t, "l")
ATOM(atom_shared_min_b64, "atom.shared.min.u64", uint64_t, "l")
ATOM(atom_shared_max_b64, "atom.shared.max.u64", uint64_t, "l")
ATOM(atom_shared_and_b64, "atom.shared.and.b64", uint64_t, "l")
ATOM(atom_shared_or_b64, "atom.shared.or.b64", uint64_t, "l")
ATOM(atom_shared_xor_b64, "atom.shared.xor.b64", uint64_t, "l")
ATOM(atom_shared_exch_b64, "atom.shared.exch.b64", uint64_t, "l")
CAS(atom_shared_cas_b64, "atom.shared.cas.b64", uint64_t, "l")
RED(red_shared_add_b32, "red.shared.add.u32", uint32_t, "r")
RED(red_shared_min_b32, "red.shared.min.u32", uint32_t, "r")
RED(red_shared_max_b32, "red.shared.max.u32", uint32_t, "r")
RED(red_shared_and_b32, "red.shared.and.b32", uint32_t, "r")
RED(red_shared_or_b32, "red.shared.or.b32", uint32_t, "r")
RED(red_shared_xor_b32, "red.shared.xor.b32", uint32_t, "r")
RED(red_shared_add_b64, "red.shared.add.u64", uint64_t, "l")
RED(red_shared_min_b64, "red.shared.min.u64", uint64_t, "l")
RED(red_shared_max_b64, "red.shared.max.u64", uint64_t, "l")
RED(red_shared_and_b64, "red.shared.and.b64", uint64_t, "l")
RED(red_shared_or_b64, "red.shared.or.b64", uint64_t, "l")
RED(red_shared_xor_b64, "red.shared.xor.b64", uint64_t, "l")

// The sources are the lanes' own 16 bytes of `out`, which the host has filled.
#define CP_ASYNC(name, size)                                                                               \
    KERNEL(name) {                                                                                         \
        BEGIN;                                                                                             \
        const uint4 *source = out + threadIdx.x;                                                           \
        if (is_active)                                                                                     \
            asm volatile("cp.async.ca.shared.global [%0], [%1], " #size ";" ::"r"(a), "l"(source) : "memory"); \
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");                        \
        keep(mode, dump);                                                                                  \
    }

CP_ASYNC(cp_async_b32, 4)
CP_ASYNC(cp_async_b64, 8)
CP_ASYNC(cp_async_b128, 16)
