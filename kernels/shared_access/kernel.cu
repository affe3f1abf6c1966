// One shared-memory access of one warp, at addresses read from memory: how many wavefronts does it take?
//
// A kernel for each instruction. The count comes from the profiler; the value that comes back is stored, so that nothing
// is optimized away. Nothing else touches shared memory: the buffer is not initialized.

#include <cstdint>

extern __shared__ __align__(1024) unsigned char buffer[];

__device__ __forceinline__ uint32_t at(const int *addresses) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) + addresses[threadIdx.x & 31];
}

__device__ __forceinline__ bool is_active(uint32_t mask) { return mask >> (threadIdx.x & 31) & 1; }

#define KERNEL(name) extern "C" __global__ void name(const int *addresses, uint32_t mask, uint32_t *out)

#define LOAD(name, ptx, type, constraint)                                                    \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses);                                                          \
        type v = 0;                                                                          \
        if (is_active(mask)) asm volatile(ptx " %0, [%1];" : "=" constraint(v) : "r"(a));    \
        out[threadIdx.x] = static_cast<uint32_t>(v);                                         \
    }

LOAD(ld_shared_b8, "ld.shared.u8", uint32_t, "r")
LOAD(ld_shared_b16, "ld.shared.u16", uint16_t, "h")
LOAD(ld_shared_b32, "ld.shared.u32", uint32_t, "r")
LOAD(ld_shared_b64, "ld.shared.u64", uint64_t, "l")

KERNEL(ld_shared_b128) {
    uint32_t a = at(addresses), v0 = 0, v1 = 0, v2 = 0, v3 = 0;
    if (is_active(mask))
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v0), "=r"(v1), "=r"(v2), "=r"(v3) : "r"(a));
    out[threadIdx.x] = v0 ^ v1 ^ v2 ^ v3;
}

#define STORE(name, ptx, type, constraint)                                                   \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses);                                                          \
        type v = static_cast<type>(out[threadIdx.x]);                                        \
        if (is_active(mask)) asm volatile(ptx " [%0], %1;" ::"r"(a), constraint(v) : "memory"); \
    }

STORE(st_shared_b8, "st.shared.u8", uint32_t, "r")
STORE(st_shared_b16, "st.shared.u16", uint16_t, "h")
STORE(st_shared_b32, "st.shared.u32", uint32_t, "r")
STORE(st_shared_b64, "st.shared.u64", uint64_t, "l")

KERNEL(st_shared_b128) {
    uint32_t a = at(addresses), v = out[threadIdx.x];
    if (is_active(mask))
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(a), "r"(v) : "memory");
}

#define LDMATRIX1(name, trans)                                                               \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses), v0;                                                      \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 {%0}, [%1];" : "=r"(v0) : "r"(a)); \
        out[threadIdx.x] = v0;                                                               \
    }
#define LDMATRIX2(name, trans)                                                               \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses), v0, v1;                                                  \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0, %1}, [%2];" : "=r"(v0), "=r"(v1) : "r"(a)); \
        out[threadIdx.x] = v0 ^ v1;                                                          \
    }
#define LDMATRIX4(name, trans)                                                               \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses), v0, v1, v2, v3;                                          \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                     : "=r"(v0), "=r"(v1), "=r"(v2), "=r"(v3) : "r"(a));                     \
        out[threadIdx.x] = v0 ^ v1 ^ v2 ^ v3;                                                \
    }

LDMATRIX1(ldmatrix_x1, "")
LDMATRIX2(ldmatrix_x2, "")
LDMATRIX4(ldmatrix_x4, "")
LDMATRIX1(ldmatrix_x1_trans, ".trans")
LDMATRIX2(ldmatrix_x2_trans, ".trans")
LDMATRIX4(ldmatrix_x4_trans, ".trans")

#if __CUDA_ARCH__ >= 900
#define STMATRIX1(name, trans)                                                               \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses), v = out[threadIdx.x];                                    \
        asm volatile("stmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 [%0], {%1};" ::"r"(a), "r"(v) : "memory"); \
    }
#define STMATRIX2(name, trans)                                                               \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses), v = out[threadIdx.x];                                    \
        asm volatile("stmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 [%0], {%1, %1};" ::"r"(a), "r"(v) : "memory"); \
    }
#define STMATRIX4(name, trans)                                                               \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses), v = out[threadIdx.x];                                    \
        asm volatile("stmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(a), "r"(v) : "memory"); \
    }
STMATRIX1(stmatrix_x1, "")
STMATRIX2(stmatrix_x2, "")
STMATRIX4(stmatrix_x4, "")
STMATRIX1(stmatrix_x1_trans, ".trans")
STMATRIX2(stmatrix_x2_trans, ".trans")
STMATRIX4(stmatrix_x4_trans, ".trans")
#endif

#define ATOM(name, ptx, type, constraint)                                                    \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses);                                                          \
        type v = static_cast<type>(out[threadIdx.x] + threadIdx.x), old = 0;                 \
        if (is_active(mask))                                                                 \
            asm volatile(ptx " %0, [%1], %2;" : "=" constraint(old) : "r"(a), constraint(v) : "memory"); \
        out[threadIdx.x] = static_cast<uint32_t>(old);                                       \
    }
#define CAS(name, ptx, type, constraint)                                                     \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses);                                                          \
        type v = static_cast<type>(out[threadIdx.x] + threadIdx.x), old = 0;                 \
        if (is_active(mask))                                                                 \
            asm volatile(ptx " %0, [%1], %2, %3;" : "=" constraint(old) : "r"(a), constraint(v), constraint(v) : "memory"); \
        out[threadIdx.x] = static_cast<uint32_t>(old);                                       \
    }
#define RED(name, ptx, type, constraint)                                                     \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses);                                                          \
        type v = static_cast<type>(out[threadIdx.x] + threadIdx.x);                          \
        if (is_active(mask)) asm volatile(ptx " [%0], %1;" ::"r"(a), constraint(v) : "memory"); \
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

#define CP_ASYNC(name, size)                                                                 \
    KERNEL(name) {                                                                           \
        uint32_t a = at(addresses);                                                          \
        const uint32_t *source = out + 4 * threadIdx.x;                                      \
        if (is_active(mask))                                                                 \
            asm volatile("cp.async.ca.shared.global [%0], [%1], " #size ";" ::"r"(a), "l"(source) : "memory"); \
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");          \
    }

CP_ASYNC(cp_async_b32, 4)
CP_ASYNC(cp_async_b64, 8)
CP_ASYNC(cp_async_b128, 16)
