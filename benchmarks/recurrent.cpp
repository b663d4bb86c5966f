// Causal linear attention token by token: the running sum of k_t v_t^T is updated and read once
// per token. One of the contenders of the benchmarks, float32, one thread.
//
// Shapes: q, k, grad_q, grad_k (heads, length, dim); v, output, grad_* (heads, length, width);
// denominator (heads, length). `heads` is batch times heads. All contiguous.

#include <algorithm>
#include <vector>

namespace {

constexpr long kLanes = 16;

// y += a x
inline void add_scaled(float* __restrict__ y, float a, const float* __restrict__ x, long n) {
  for (long i = 0; i < n; ++i) y[i] += a * x[i];
}

// In lanes, so that it vectorises without the licence to reorder sums.
inline float dot(const float* __restrict__ x, const float* __restrict__ y, long n) {
  float lanes[kLanes] = {};
  long i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (long j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * y[i + j];
  float sum = 0;
  for (; i < n; ++i) sum += x[i] * y[i];
  for (long j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}

}  // namespace

// output_s = q_s (sum_{t <= s} k_t v_t^T) / denominator_s, denominator_s = q_s . sum_{t <= s} k_t
extern "C" void recurrent_forward(const float* q, const float* k, const float* v, float* output,
                                  float* denominator, long heads, long length, long dim,
                                  long width) {
  std::vector<float> state(dim * width), keys(dim);
  for (long h = 0; h < heads; ++h) {
    std::fill(state.begin(), state.end(), 0.f);
    std::fill(keys.begin(), keys.end(), 0.f);
    for (long t = 0; t < length; ++t) {
      const long row = h * length + t;
      const float *qt = q + row * dim, *kt = k + row * dim, *vt = v + row * width;
      float* out = output + row * width;
      std::fill(out, out + width, 0.f);
      for (long i = 0; i < dim; ++i) {
        float* line = state.data() + i * width;
        add_scaled(line, kt[i], vt, width);
        add_scaled(out, qt[i], line, width);
      }
      add_scaled(keys.data(), 1.f, kt, dim);
      denominator[row] = dot(qt, keys.data(), dim);
      const float inverse = 1.f / denominator[row];
      for (long m = 0; m < width; ++m) out[m] *= inverse;
    }
  }
}

// The states are computed anew: forwards for the queries, backwards for keys and values.
extern "C" void recurrent_backward(const float* q, const float* k, const float* v,
                                   const float* output, const float* denominator,
                                   const float* grad_output, float* grad_q, float* grad_k,
                                   float* grad_v, long heads, long length, long dim, long width) {
  // Both states are kept as (width, dim), which makes sums along dim additions of rows.
  std::vector<float> state(dim * width), sums(dim), numerator(width);
  for (long h = 0; h < heads; ++h) {
    std::fill(state.begin(), state.end(), 0.f);
    std::fill(sums.begin(), sums.end(), 0.f);
    for (long t = 0; t < length; ++t) {
      const long row = h * length + t;
      const float *kt = k + row * dim, *vt = v + row * width, *gt = grad_output + row * width;
      const float inverse = 1.f / denominator[row];
      const float slope = -inverse * dot(gt, output + row * width, width);
      float* grad = grad_q + row * dim;
      add_scaled(sums.data(), 1.f, kt, dim);
      for (long i = 0; i < dim; ++i) grad[i] = slope * sums[i];
      for (long m = 0; m < width; ++m) {
        float* line = state.data() + m * dim;
        add_scaled(line, vt[m], kt, dim);
        add_scaled(grad, inverse * gt[m], line, dim);
      }
    }
    std::fill(state.begin(), state.end(), 0.f);
    std::fill(sums.begin(), sums.end(), 0.f);
    for (long t = length - 1; t >= 0; --t) {
      const long row = h * length + t;
      const float *qt = q + row * dim, *kt = k + row * dim, *vt = v + row * width;
      const float* gt = grad_output + row * width;
      const float inverse = 1.f / denominator[row];
      const float slope = -inverse * dot(gt, output + row * width, width);
      float *to_k = grad_k + row * dim, *to_v = grad_v + row * width;
      add_scaled(sums.data(), slope, qt, dim);
      std::copy(sums.begin(), sums.end(), to_k);
      for (long m = 0; m < width; ++m) {
        float* line = state.data() + m * dim;
        add_scaled(line, inverse * gt[m], qt, dim);
        add_scaled(to_k, vt[m], line, dim);
        to_v[m] = dot(kt, line, dim);
      }
    }
  }
}
