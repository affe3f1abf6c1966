// Row kernels as frameworks write them: softmax, layer norm, RMS norm, and bias with GELU, of a row-major array.
//
// A warp or a block has a row. A lane loads vectors of 2 to 16 bytes. Between the passes over it a row stays in registers, in
// shared memory, or nowhere: then it is read again. The number of columns is an argument, so vectors beyond the row are masked.
#include <cstdint>
#include <cuda_bf16.h>

namespace {

enum Keep { REGISTERS, SMEM, REREAD };
enum Combine { ALL_WARPS, FIRST_WARP };  // who adds up the words that the warps of a block leave

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float EPSILON = 1e-5f;

template <typename T, int BYTES>
struct alignas(BYTES) Vector {
    static constexpr int SIZE = BYTES / sizeof(T);
    T of[SIZE];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float& to, float x) { to = x; }
__device__ void from_float(__nv_bfloat16& to, float x) { to = __float2bfloat16(x); }

__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// What the lanes of a row find out together: up to three words, and how two of them become one.
struct Maximum {
    static constexpr int WORDS = 1;
    float word[1] = {-INFINITY};
    __device__ void add(float x) { word[0] = fmaxf(word[0], x); }
    __device__ void merge(const Maximum& other) { word[0] = fmaxf(word[0], other.word[0]); }
};

struct Sum {
    static constexpr int WORDS = 1;
    float word[1] = {0.0f};
    __device__ void add(float x) { word[0] += x; }
    __device__ void merge(const Sum& other) { word[0] += other.word[0]; }
};

// Maximum, and the sum of the powers less that maximum.
struct Online {
    static constexpr int WORDS = 2;
    float word[2] = {-INFINITY, 0.0f};
    __device__ void add(float x) {
        const float most = fmaxf(word[0], x);
        word[1] = word[1] * exp2_of((word[0] - most) * LOG2_E) + exp2_of((x - most) * LOG2_E);
        word[0] = most;
    }
    __device__ void merge(const Online& other) {
        const float most = fmaxf(word[0], other.word[0]);
        const float own = word[0] == -INFINITY ? 0.0f : word[1] * exp2_of((word[0] - most) * LOG2_E);
        const float its = other.word[0] == -INFINITY ? 0.0f : other.word[1] * exp2_of((other.word[0] - most) * LOG2_E);
        word[1] = own + its;
        word[0] = most;
    }
};

// Mean, sum of squared distances from it, number of elements.
struct Welford {
    static constexpr int WORDS = 3;
    float word[3] = {0.0f, 0.0f, 0.0f};
    __device__ void add(float x) {
        const float distance = x - word[0];
        word[2] += 1.0f;
        word[0] += distance * (1.0f / word[2]);
        word[1] += distance * (x - word[0]);
    }
    __device__ void merge(const Welford& other) {
        const float distance = other.word[0] - word[0], num = word[2] + other.word[2];
        if (num > 0.0f) {
            const float share = other.word[2] * (1.0f / num);
            word[1] += other.word[1] + distance * distance * word[2] * share;
            word[0] += distance * share;
            word[2] = num;
        }
    }
};

template <typename State>
__device__ void merge_warp(State& state, int lanes) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        State other;
#pragma unroll
        for (int i = 0; i < State::WORDS; ++i) other.word[i] = __shfl_xor_sync(0xffffffffu, state.word[i], distance);
        state.merge(other);
    }
}

// All threads of a row get it. `words`: shared memory for 32 states.
template <int LANES, Combine COMBINE, typename State>
__device__ void merge_row(State& state, float* words) {
    constexpr int WARPS = LANES / 32;
    merge_warp(state, 32);
    if constexpr (LANES == 32) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (COMBINE == FIRST_WARP) __syncthreads();
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < State::WORDS; ++i) words[i * 32 + warp] = state.word[i];
    }
    __syncthreads();
    if (COMBINE == ALL_WARPS) {
#pragma unroll
        for (int i = 0; i < State::WORDS; ++i) state.word[i] = words[i * 32 + lane % WARPS];
        merge_warp(state, WARPS);
        return;
    }
    if (warp == 0) {
        state = State();
        if (lane < WARPS) {
#pragma unroll
            for (int i = 0; i < State::WORDS; ++i) state.word[i] = words[i * 32 + lane];
        }
        merge_warp(state, 32);
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < State::WORDS; ++i) words[i * 32] = state.word[i];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < State::WORDS; ++i) state.word[i] = words[i * 32];
}

struct Arrays {
    const void* in;
    const void* gamma;
    const void* beta;
    const void* residual;
    void* sum;
    void* out;
    int rows, columns;
};

// One row: the passes over it. NUM: vectors of a lane, where they stay in registers.
template <typename T, int BYTES, int LANES, Keep KEEP, int NUM, bool RESIDUAL>
struct Row {
    using V = Vector<T, BYTES>;
    static constexpr int SIZE = V::SIZE;
    __device__ static constexpr bool is_kept() { return KEEP == REGISTERS; }
    const V* in;
    const V* residual;
    V* sum;
    V* out;
    V* kept;  // in shared memory
    int num_vectors, lane;
    float x[KEEP == REGISTERS ? NUM : 1][SIZE];

    // A vector of the row, and its values. With a residual: of the sum of both, which is stored, too.
    __device__ V fetch(int idx, float* to) {
        V v = in[idx];
#pragma unroll
        for (int j = 0; j < SIZE; ++j) to[j] = to_float(v.of[j]);
        if constexpr (RESIDUAL) {
            const V old = residual[idx];
#pragma unroll
            for (int j = 0; j < SIZE; ++j) {
                to[j] += to_float(old.of[j]);
                from_float(v.of[j], to[j]);
            }
            sum[idx] = v;
        }
        return v;
    }

    // f(float[SIZE]): the first pass, which fetches the row.
    template <typename F>
    __device__ void first(F f) {
        if constexpr (KEEP == REGISTERS) {
            V loaded[NUM], old[RESIDUAL ? NUM : 1];
#pragma unroll
            for (int i = 0; i < NUM; ++i) {
                if (lane + i * LANES < num_vectors) loaded[i] = in[lane + i * LANES];
                if (RESIDUAL && lane + i * LANES < num_vectors) old[i] = residual[lane + i * LANES];
            }
#pragma unroll
            for (int i = 0; i < NUM; ++i) {
                if (lane + i * LANES >= num_vectors) continue;
#pragma unroll
                for (int j = 0; j < SIZE; ++j) x[i][j] = to_float(loaded[i].of[j]);
                if (RESIDUAL) {
                    V v;
#pragma unroll
                    for (int j = 0; j < SIZE; ++j) {
                        x[i][j] += to_float(old[i].of[j]);
                        from_float(v.of[j], x[i][j]);
                    }
                    sum[lane + i * LANES] = v;
                }
                f(x[i]);
            }
        } else {
            for (int idx = lane; idx < num_vectors; idx += LANES) {
                float values[SIZE];
                const V v = fetch(idx, values);
                if (KEEP == SMEM) kept[idx] = v;
                f(values);
            }
        }
    }

    // f(float[SIZE], vector): a later pass. Registers keep what f leaves in its argument.
    template <typename F>
    __device__ void again(F f) {
        if constexpr (KEEP == REGISTERS) {
#pragma unroll
            for (int i = 0; i < NUM; ++i)
                if (lane + i * LANES < num_vectors) f(x[i], lane + i * LANES);
        } else {
            const V* from = KEEP == SMEM ? kept : RESIDUAL ? sum : in;
            for (int idx = lane; idx < num_vectors; idx += LANES) {
                const V v = from[idx];
                float values[SIZE];
#pragma unroll
                for (int j = 0; j < SIZE; ++j) values[j] = to_float(v.of[j]);
                f(values, idx);
            }
        }
    }

    __device__ void store(int idx, const float* values) {
        V v;
#pragma unroll
        for (int j = 0; j < SIZE; ++j) from_float(v.of[j], values[j]);
        out[idx] = v;
    }
};

template <int LANES, Combine COMBINE>
struct SoftmaxTwoPass {
    template <typename R>
    __device__ static void run(R& row, const Arrays&, float* words) {
        Maximum most;
        row.first([&](const float* x) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) most.add(x[j]);
        });
        merge_row<LANES, COMBINE>(most, words);
        const float shift = most.word[0] * LOG2_E;
        Sum sum;
        row.again([&](float* x, int) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) {
                x[j] = exp2_of(x[j] * LOG2_E - shift);
                sum.add(x[j]);
            }
        });
        merge_row<LANES, COMBINE>(sum, words + 32);
        const float scale = 1.0f / sum.word[0];
        row.again([&](float* x, int idx) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) x[j] = (R::is_kept() ? x[j] : exp2_of(x[j] * LOG2_E - shift)) * scale;
            row.store(idx, x);
        });
    }
};

template <int LANES, Combine COMBINE>
struct SoftmaxOnline {
    template <typename R>
    __device__ static void run(R& row, const Arrays&, float* words) {
        Online online;
        row.first([&](const float* x) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) online.add(x[j]);
        });
        merge_row<LANES, COMBINE>(online, words);
        const float shift = online.word[0] * LOG2_E, scale = 1.0f / online.word[1];
        row.again([&](float* x, int idx) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) x[j] = exp2_of(x[j] * LOG2_E - shift) * scale;
            row.store(idx, x);
        });
    }
};

// out = (x - mean) * scale * gamma + beta, by vectors of the row.
template <typename T, int BYTES, typename R>
__device__ void scale_row(R& row, const Arrays& arrays, float mean, float scale) {
    using V = Vector<T, BYTES>;
    row.again([&](float* x, int idx) {
        const V gamma = reinterpret_cast<const V*>(arrays.gamma)[idx], beta = reinterpret_cast<const V*>(arrays.beta)[idx];
#pragma unroll
        for (int j = 0; j < R::SIZE; ++j) x[j] = (x[j] - mean) * scale * to_float(gamma.of[j]) + to_float(beta.of[j]);
        row.store(idx, x);
    });
}

template <typename T, int BYTES, int LANES, Combine COMBINE>
struct LayerNormTwoPass {
    template <typename R>
    __device__ static void run(R& row, const Arrays& arrays, float* words) {
        Sum sum;
        row.first([&](const float* x) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) sum.add(x[j]);
        });
        merge_row<LANES, COMBINE>(sum, words);
        const float mean = sum.word[0] / arrays.columns;
        Sum squares;
        row.again([&](float* x, int) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) squares.add((x[j] - mean) * (x[j] - mean));
        });
        merge_row<LANES, COMBINE>(squares, words + 32);
        scale_row<T, BYTES>(row, arrays, mean, rsqrtf(squares.word[0] / arrays.columns + EPSILON));
    }
};

template <typename T, int BYTES, int LANES, Combine COMBINE>
struct LayerNormWelford {
    template <typename R>
    __device__ static void run(R& row, const Arrays& arrays, float* words) {
        Welford state;
        row.first([&](const float* x) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) state.add(x[j]);
        });
        merge_row<LANES, COMBINE>(state, words);
        scale_row<T, BYTES>(row, arrays, state.word[0], rsqrtf(state.word[1] / arrays.columns + EPSILON));
    }
};

template <typename T, int BYTES, int LANES, Combine COMBINE>
struct RmsNorm {
    template <typename R>
    __device__ static void run(R& row, const Arrays& arrays, float* words) {
        using V = Vector<T, BYTES>;
        Sum squares;
        row.first([&](const float* x) {
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) squares.add(x[j] * x[j]);
        });
        merge_row<LANES, COMBINE>(squares, words);
        const float scale = rsqrtf(squares.word[0] / arrays.columns + EPSILON);
        row.again([&](float* x, int idx) {
            const V gamma = reinterpret_cast<const V*>(arrays.gamma)[idx];
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) x[j] = x[j] * scale * to_float(gamma.of[j]);
            row.store(idx, x);
        });
    }
};

// out = gelu(in + bias), by the tanh formula.
template <typename T, int BYTES>
struct BiasGelu {
    template <typename R>
    __device__ static void run(R& row, const Arrays& arrays, float*) {
        using V = Vector<T, BYTES>;
        row.again([&](float* x, int idx) {
            const V bias = reinterpret_cast<const V*>(arrays.gamma)[idx];
#pragma unroll
            for (int j = 0; j < R::SIZE; ++j) {
                const float y = x[j] + to_float(bias.of[j]);
                const float inner = 0.7978845608f * (y + 0.044715f * y * y * y);
                float tanh_of;
                asm("tanh.approx.f32 %0, %1;" : "=f"(tanh_of) : "f"(inner));
                x[j] = 0.5f * y * (1.0f + tanh_of);
            }
            row.store(idx, x);
        });
    }
};

// A persistent grid has fewer blocks than rows, and goes on with the row that is a grid's rows further.
template <typename Kind, typename T, int BYTES, int LANES, int THREADS, Keep KEEP, int NUM, bool RESIDUAL, bool PERSISTENT>
__device__ void run_rows(const Arrays& arrays) {
    constexpr int ROWS = THREADS / LANES;
    extern __shared__ __align__(16) char smem[];
    __shared__ float words[6 * 32];
    Row<T, BYTES, LANES, KEEP, NUM, RESIDUAL> row;
    using V = Vector<T, BYTES>;
    row.lane = threadIdx.x % LANES;
    row.num_vectors = arrays.columns / V::SIZE;
    row.kept = reinterpret_cast<V*>(smem);
    const auto one = [&](int64_t idx) {
        const int64_t begin = idx * row.num_vectors;
        row.in = reinterpret_cast<const V*>(arrays.in == nullptr ? arrays.out : arrays.in) + begin;  // or in place
        row.residual = reinterpret_cast<const V*>(arrays.residual) + begin;
        row.sum = reinterpret_cast<V*>(arrays.sum) + begin;
        row.out = reinterpret_cast<V*>(arrays.out) + begin;
        Kind::run(row, arrays, words);
    };
    int64_t idx = static_cast<int64_t>(blockIdx.x) * ROWS + threadIdx.x / LANES;
    if constexpr (PERSISTENT) {
        for (; idx < arrays.rows; idx += static_cast<int64_t>(gridDim.x) * ROWS) {
            one(idx);
            if (LANES > 32) __syncthreads();
        }
    } else if (ROWS == 1 || idx < arrays.rows) {
        one(idx);
    }
}

}  // namespace

#define ROWS(NAME, KIND, T, BYTES, LANES, THREADS, KEEP, NUM, RESIDUAL, PERSISTENT)                                    \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        NAME(const void* in, const void* gamma, const void* beta, const void* residual, void* sum, void* out,          \
             int rows, int columns) {                                                                                  \
        run_rows<KIND, T, BYTES, LANES, THREADS, KEEP, NUM, RESIDUAL, PERSISTENT>(                                      \
            {in, gamma, beta, residual, sum, out, rows, columns});                                                          \
    }
#define BF16 __nv_bfloat16

#define SOFTMAX(NAME, KIND, T, BYTES, LANES, THREADS, KEEP, NUM, COMBINE, PERSISTENT) \
    using Of_##NAME = KIND<LANES, COMBINE>;                                           \
    ROWS(NAME, Of_##NAME, T, BYTES, LANES, THREADS, KEEP, NUM, false, PERSISTENT)
#define NORM(NAME, KIND, T, BYTES, LANES, THREADS, KEEP, NUM, RESIDUAL, PERSISTENT) \
    using Of_##NAME = KIND<T, BYTES, LANES, ALL_WARPS>;                             \
    ROWS(NAME, Of_##NAME, T, BYTES, LANES, THREADS, KEEP, NUM, RESIDUAL, PERSISTENT)

SOFTMAX(softmax_warp_fp32_v4_n32, SoftmaxTwoPass, float, 4, 32, 128, REGISTERS, 32, ALL_WARPS, false)
SOFTMAX(softmax_warp_bf16_v2_n32, SoftmaxTwoPass, BF16, 2, 32, 128, REGISTERS, 32, ALL_WARPS, false)
SOFTMAX(softmax_warp_bf16_v16_n4, SoftmaxTwoPass, BF16, 16, 32, 128, REGISTERS, 4, ALL_WARPS, false)
SOFTMAX(softmax_block_fp32_v4_n8, SoftmaxTwoPass, float, 4, 1024, 1024, REGISTERS, 8, FIRST_WARP, false)
SOFTMAX(softmax_block_bf16_v16_n4, SoftmaxTwoPass, BF16, 16, 256, 256, REGISTERS, 4, ALL_WARPS, false)
SOFTMAX(softmax_smem_fp32_v16, SoftmaxTwoPass, float, 16, 1024, 1024, SMEM, 1, FIRST_WARP, false)
SOFTMAX(softmax_smem_bf16_v16, SoftmaxTwoPass, BF16, 16, 512, 512, SMEM, 1, FIRST_WARP, false)
SOFTMAX(softmax_reread_fp32_v16, SoftmaxTwoPass, float, 16, 1024, 1024, REREAD, 1, FIRST_WARP, false)
SOFTMAX(softmax_reread_bf16_v16, SoftmaxTwoPass, BF16, 16, 1024, 1024, REREAD, 1, FIRST_WARP, false)
SOFTMAX(softmax_online_fp32_v16, SoftmaxOnline, float, 16, 512, 512, REREAD, 1, ALL_WARPS, false)
SOFTMAX(softmax_online_bf16_v16, SoftmaxOnline, BF16, 16, 1024, 1024, REREAD, 1, ALL_WARPS, false)
SOFTMAX(softmax_persistent_bf16_v16_n4, SoftmaxTwoPass, BF16, 16, 256, 256, REGISTERS, 4, ALL_WARPS, true)
NORM(layer_norm_welford_fp32_v16, LayerNormWelford, float, 16, 128, 128, REREAD, 1, false, false)
NORM(layer_norm_welford_bf16_v8, LayerNormWelford, BF16, 8, 128, 128, REREAD, 1, false, false)
NORM(layer_norm_reread_bf16_v16, LayerNormTwoPass, BF16, 16, 256, 256, REREAD, 1, false, false)
NORM(layer_norm_smem_bf16_v16, LayerNormTwoPass, BF16, 16, 256, 256, SMEM, 1, false, false)
NORM(layer_norm_block_fp32_v16_n4, LayerNormTwoPass, float, 16, 256, 256, REGISTERS, 4, false, false)
NORM(rms_norm_warp_bf16_v16_n4, RmsNorm, BF16, 16, 32, 128, REGISTERS, 4, false, false)
NORM(rms_norm_block_bf16_v16_n2, RmsNorm, BF16, 16, 512, 512, REGISTERS, 2, true, false)
NORM(rms_norm_smem_bf16_v16, RmsNorm, BF16, 16, 512, 512, SMEM, 1, true, false)
NORM(rms_norm_reread_bf16_v16, RmsNorm, BF16, 16, 1024, 1024, REREAD, 1, true, false)
NORM(rms_norm_reread_fp32_v16, RmsNorm, float, 16, 256, 256, REREAD, 1, false, false)
NORM(rms_norm_persistent_bf16_v16_n2, RmsNorm, BF16, 16, 512, 512, REGISTERS, 2, false, true)

using OfBiasGelu = BiasGelu<BF16, 16>;
ROWS(bias_gelu_bf16_v16, OfBiasGelu, BF16, 16, 256, 256, REREAD, 1, false, false)
