// Causal linear attention in float32 on a CPU, forward and backward: the same chunks and the same
// order of sums as kernels/chunked.py, with everything of a chunk in the second-level cache.
//
// A plain C interface, so that one library serves every version of PyTorch and Python. Heads are
// independent and shared out to threads whole, so results do not depend on the number of threads.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

constexpr long CHUNK = 64;
constexpr float MIN_DENOMINATOR = 1e-30f;  // as in kernels/normalizer.py

// (B, H, T, features) with dense features; strides in floats.
struct Rows {
    float* data;
    long batch, head, row;
    float* at(long b, long h) const { return data + b * batch + h * head; }
};

}  // namespace

extern "C" {

// `state` (N, D, M), `total` (N, D) and `size` (N) hold the sums of k v^T, k and |k| before the first
// key and are left as those after the last one. `denominator` (N, T) is written, null for no division;
// `floor` (N, T) too, null for none, with `min_cosine`. `epsilon` below 0 for none.
struct Forward {
    long batches, heads, length, features, values;
    Rows q, k, v, output;
    float *state, *total, *size, *denominator, *floor;
    float min_cosine, epsilon;
};

// `later`, `later_total` and `later_size` hold the gradients of the last sums and are left as those of
// the first; `later_size` is null if nothing depends on norms. The others are as forward left them, but
// for `state`, `total` and `size`, the sums before the first key.
struct Backward {
    long batches, heads, length, features, values;
    Rows q, k, v, output, grad, to_q, to_k, to_v;
    const float *state, *total, *size, *denominator, *floor;
    float *later, *later_total, *later_size;
    float min_cosine, epsilon;
};

}  // extern "C"

namespace {

inline float clamp(float value, float floor, float epsilon) {
    // Comparisons are written so that NaN stays NaN.
    if (epsilon >= 0) return value < epsilon ? epsilon : value;
    const float least = floor < MIN_DENOMINATOR ? MIN_DENOMINATOR : floor;
    const float size = std::fabs(value);
    return std::copysign(size < least ? least : size, value < 0 ? -1.0f : 1.0f);
}

// Gradients through the division by one clamped denominator, as in kernels/division.py.
struct Slopes {
    float inverse, denominator, floor;
};

inline Slopes slopes_of(float raw, float floor, bool has_floor, float epsilon, float along) {
    const float inverse = 1.0f / clamp(raw, floor, epsilon), slope = -along * inverse;
    if (epsilon >= 0) return {inverse, raw < epsilon ? 0.0f : slope, 0.0f};
    const bool is_low = std::fabs(raw) < (floor < MIN_DENOMINATOR ? MIN_DENOMINATOR : floor);
    // The constant MIN_DENOMINATOR has no gradient.
    const bool follows = is_low && has_floor && floor >= MIN_DENOMINATOR;
    return {inverse, is_low ? 0.0f : slope, follows ? (raw < 0 ? -slope : slope) : 0.0f};
}

// The factor on x in its gradient, if its norm has the gradient `slope`; finite at a norm of 0.
inline float slope_of_norm(float slope, float norm) {
    return slope / std::max(norm, 1.0842022e-19f);  // the root of the least normal float
}

struct Scratch {
    float *k_across, *v_across, *weights, *to_weights, *state_across, *later_across;
    float *gradient, *inverse, *slope, *q_factor, *k_factor, *states, *totals, *sizes;

    Scratch(long features, long values, long chunks) {
        // Columns of short chunks that a whole tile reads must be numbers: all begins as 0.
        const long sizes_of[] = {features * CHUNK, values * CHUNK, CHUNK * CHUNK, CHUNK * CHUNK,
                                 features * values, features * values, CHUNK * values,
                                 CHUNK, CHUNK, CHUNK, CHUNK,
                                 chunks * features * values, chunks * features, chunks * CHUNK};
        float** const parts[] = {&k_across, &v_across, &weights, &to_weights,
                                 &state_across, &later_across, &gradient,
                                 &inverse, &slope, &q_factor, &k_factor,
                                 &states, &totals, &sizes};
        long all = 0;
        for (long size : sizes_of) all += (size + 15) / 16 * 16;
        memory_.assign(all + 16, 0.0f);
        float* at = memory_.data();
        at += (64 - reinterpret_cast<std::size_t>(at) % 64) % 64 / sizeof(float);
        for (int i = 0; i < 14; ++i) {
            *parts[i] = at;
            at += (sizes_of[i] + 15) / 16 * 16;
        }
    }

   private:
    std::vector<float> memory_;
};

#define WIDTH 4
#define ROWS 4
namespace generic {
#include "tiles.inc"
}
#undef WIDTH
#undef ROWS

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_VARIANTS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define WIDTH 8
#define ROWS 6
namespace avx2 {
#include "tiles.inc"
}
#undef WIDTH
#undef ROWS
#pragma GCC pop_options
#pragma GCC push_options
#ifdef EMULATE_AVX512  // for tests, on machines without it: two narrower vectors for each
#define HAS_AVX512 true
#pragma GCC target("avx2,fma")
#else
#define HAS_AVX512 (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
#pragma GCC target("avx512f,avx512dq,avx2,fma")
#endif
#define WIDTH 16
#define ROWS 8
namespace avx512 {
#include "tiles.inc"
}
#undef WIDTH
#undef ROWS
#pragma GCC pop_options
#endif

// The width of vectors, in floats, for these sizes; 0 where PyTorch's own products are faster. The
// environment can force a smaller one, for tests.
int width_for(long features, long values) {
    const char* word = std::getenv("FAIRSEQ_PLUGINS_VECTOR");
    const int most = word ? std::atoi(word) : 16;
    auto divides = [&](int block) { return features % block == 0 && values % block == 0; };
#ifdef HAS_VARIANTS
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (most >= 16 && divides(32) && HAS_AVX512) return 16;
    if (most >= 8 && divides(16) && has_avx2) return 8;
    return most == 4 && divides(8) ? 4 : 0;
#else
    (void)most;
    return divides(8) ? 4 : 0;
#endif
}

// Call `one(n, scratch)` for n below `heads`, shared out to threads. 0, or 1 without memory.
template <class One>
int share(long heads, int threads, long features, long values, long chunks, One one) {
    std::atomic<long> next(0);
    std::atomic<int> failed(0);
    auto work = [&] {
        try {
            Scratch scratch(features, values, chunks);
            for (long n; (n = next++) < heads;) one(n, scratch);
        } catch (const std::bad_alloc&) {
            failed = 1;
        }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads && i < heads; ++i) {
        try {
            others.emplace_back(work);
        } catch (...) {
            break;  // Fewer threads do the same work.
        }
    }
    work();
    for (auto& other : others) other.join();
    return failed;
}

}  // namespace

extern "C" {

int pe_linear_width(long features, long values) { return width_for(features, values); }

int pe_linear_forward(const Forward* f, int threads) {
    const int width = width_for(f->features, f->values);
    auto one = [&](long n, Scratch& scratch) {
#ifdef HAS_VARIANTS
        if (width == 16) return avx512::forward(*f, n, scratch);
        if (width == 8) return avx2::forward(*f, n, scratch);
#endif
        generic::forward(*f, n, scratch);
    };
    return share(f->batches * f->heads, threads, f->features, f->values, 0, one);
}

int pe_linear_backward(const Backward* f, int threads) {
    const int width = width_for(f->features, f->values);
    auto one = [&](long n, Scratch& scratch) {
#ifdef HAS_VARIANTS
        if (width == 16) return avx512::backward(*f, n, scratch);
        if (width == 8) return avx2::backward(*f, n, scratch);
#endif
        generic::backward(*f, n, scratch);
    };
    const long chunks = (f->length + CHUNK - 1) / CHUNK;
    return share(f->batches * f->heads, threads, f->features, f->values, chunks, one);
}

}  // extern "C"
