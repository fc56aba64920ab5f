#include "cuda/bench/passes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "cuda/nvrtc.hpp"

namespace coda::cuda {
namespace {

constexpr const char* source = R"cuda(
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
struct alignas(16) Raw { u32 w[4]; };
struct V { float v[8]; };
__device__ V unpack(Raw r) { V x; for (int i = 0; i < 4; i++) { x.v[2*i] = __uint_as_float(r.w[i] << 16); x.v[2*i+1] = __uint_as_float(r.w[i] & 0xffff0000u); } return x; }
__device__ V load8(const u16* p) { return unpack(*(const Raw*)p); }
__device__ u32 pair(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
__device__ void store8(u16* p, const V& x) { Raw r; for (int i = 0; i < 4; i++) r.w[i] = pair(x.v[2*i], x.v[2*i+1]); *(Raw*)p = r; }
__device__ float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
__device__ float block_sum(float s) {
  __shared__ float part[8];
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = s;
  __syncthreads();
  s = 0; for (int i = 0; i < 8; i++) s += part[i];
  return s;
}

// z = acc * rstd, y = silu(z[:, :n/2]) * z[:, n/2:]; a block a row
extern "C" __global__ void swiglu(const u16* acc, const float* rstd, u16* z, u16* y, int n) {
  const i64 row = blockIdx.x; const float r = rstd[row]; const int h = n / 2;
  for (int c = threadIdx.x * 8; c < h; c += 2048) {
    V g = load8(acc + row * n + c), u = load8(acc + row * n + h + c), o;
    for (int i = 0; i < 8; i++) { g.v[i] *= r; u.v[i] *= r; o.v[i] = g.v[i] * sigmoid(g.v[i]) * u.v[i]; }
    store8(z + row * n + c, g); store8(z + row * n + h + c, u); store8(y + row * h + c, o);
  }
}

// x = acc + residual, h = x * w, rstd = rsqrt(mean x^2 + eps); a block a row
extern "C" __global__ void residual_norm(const u16* acc, const u16* residual, const u16* w, u16* x, u16* h, float* rstd, int n, float eps) {
  const i64 row = blockIdx.x; float s = 0;
  for (int c = threadIdx.x * 8; c < n; c += 2048) {
    V a = load8(acc + row * n + c), b = load8(residual + row * n + c), g = load8(w + c), o;
    for (int i = 0; i < 8; i++) { a.v[i] += b.v[i]; s += a.v[i] * a.v[i]; o.v[i] = a.v[i] * g.v[i]; }
    store8(x + row * n + c, a); store8(h + row * n + c, o);
  }
  s = block_sum(s);
  if (threadIdx.x == 0) rstd[row] = rsqrtf(s / n + eps);
}

// heads of 128: z = acc * rstd, optional per-head norm, rotation of columns below `rotated`; 16 lanes a head
extern "C" __global__ void rope(const u16* acc, const float* rstd, const i64* position, const float* cosine, const float* sine, const u16* wq, const u16* wk,
                                u16* out, int n, int rotated, int q_columns, int normed, float eps) {
  const i64 row = blockIdx.x; const float r = rstd[row]; const float* c0 = cosine + position[row] * 64; const float* s0 = sine + position[row] * 64;
  const int lane = threadIdx.x & 15;
  for (int base = (threadIdx.x >> 4) * 128; base < n; base += 2048) {
    V z = load8(acc + row * n + base + 8 * lane);
    for (int i = 0; i < 8; i++) z.v[i] *= r;
    const bool turn = base < rotated;
    if (normed && turn) {
      float s = 0; for (int i = 0; i < 8; i++) s += z.v[i] * z.v[i];
      for (int d = 8; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
      const float k = rsqrtf(s / 128 + eps); V w = load8((base < q_columns ? wq : wk) + 8 * lane);
      for (int i = 0; i < 8; i++) z.v[i] *= k * w.v[i];
    }
    V o;
    for (int i = 0; i < 8; i++) {
      const float other = __shfl_xor_sync(~0u, z.v[i], 8); const int f = (8 * lane + i) & 63;
      o.v[i] = turn ? z.v[i] * c0[f] + (lane < 8 ? -other : other) * s0[f] : z.v[i];
    }
    store8(out + row * n + base + 8 * lane, o);
  }
}

// dx = dresidual + rstd (acc w - xhat zdz / n), h = xhat w, dw += sum_m acc xhat; a block: 32 rows of 2048 columns
extern "C" __global__ void norm_backward(const u16* acc, const u16* x, const u16* dresidual, const u16* w, const float* rstd, const float* zdz,
                                         u16* dx, u16* h, float* dw, int m, int n) {
  const int strips = (n + 2047) / 2048, c = (blockIdx.x % strips) * 2048 + threadIdx.x * 8; const int first = blockIdx.x / strips * 32;
  if (c >= n) return;
  V g = load8(w + c); float sum[8] = {};
  for (int row = first; row < min(first + 32, m); row++) {
    const i64 at = (i64)row * n + c; const float r = rstd[row], k = zdz[row] / n;
    V a = load8(acc + at), v = load8(x + at), d = load8(dresidual + at), o, hh;
    for (int i = 0; i < 8; i++) { const float xh = v.v[i] * r; o.v[i] = d.v[i] + r * (a.v[i] * g.v[i] - xh * k); hh.v[i] = xh * g.v[i]; sum[i] += a.v[i] * xh; }
    store8(dx + at, o); store8(h + at, hh);
  }
  for (int i = 0; i < 8; i++) atomicAdd(dw + c + i, sum[i]);
}

// dz, y and sum z dz of y = silu(g) u, acc = dy; a block a row
extern "C" __global__ void swiglu_backward(const u16* acc, const u16* z, u16* dz, u16* y, float* zdz, int n) {
  const i64 row = blockIdx.x; float t = 0;
  for (int c = threadIdx.x * 8; c < n; c += 2048) {
    V a = load8(acc + row * n + c), g = load8(z + row * 2 * n + c), u = load8(z + row * 2 * n + n + c), dg, du, o;
    for (int i = 0; i < 8; i++) {
      const float s = sigmoid(g.v[i]), act = g.v[i] * s;
      dg.v[i] = a.v[i] * u.v[i] * (s + act * (1 - s)); du.v[i] = a.v[i] * act; o.v[i] = act * u.v[i]; t += g.v[i] * dg.v[i] + u.v[i] * du.v[i];
    }
    store8(dz + row * 2 * n + c, dg); store8(dz + row * 2 * n + n + c, du); store8(y + row * n + c, o);
  }
  t = block_sum(t);
  if (threadIdx.x == 0) zdz[row] = t;
}

// loss = log sum exp(z - max) - (z[target] - max), one pass over stored logits; a block a row
extern "C" __global__ void cross_entropy(const u16* logits, const i64* target, float* zmax, float* zsum, float* loss, int n) {
  const i64 row = blockIdx.x; float m = -__int_as_float(0x7f800000), s = 0;
  for (int c = threadIdx.x * 8; c < n; c += 2048) {
    V z = load8(logits + row * n + c); float top = m;
    for (int i = 0; i < 8; i++) top = fmaxf(top, z.v[i]);
    s *= __expf(m - top);
    for (int i = 0; i < 8; i++) s += __expf(z.v[i] - top);
    m = top;
  }
  __shared__ float ms[256], ss[256];
  ms[threadIdx.x] = m; ss[threadIdx.x] = s;
  for (int d = 128; d; d >>= 1) {
    __syncthreads();
    if (threadIdx.x < d) {
      const float a = ms[threadIdx.x], b = ms[threadIdx.x + d], top = fmaxf(a, b);
      ss[threadIdx.x] = ss[threadIdx.x] * __expf(a - top) + ss[threadIdx.x + d] * __expf(b - top); ms[threadIdx.x] = top;
    }
  }
  if (threadIdx.x == 0) {
    const float z = __uint_as_float((u32)logits[row * n + target[row]] << 16);
    zmax[row] = ms[0]; zsum[row] = ss[0]; loss[row] = __logf(ss[0]) - (z - ms[0]);
  }
}

__device__ u32 mix(u32 x) { x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ x >> 16; }
__device__ float normal(u64 i, u32 seed) {
  const u32 a = mix((u32)i ^ mix(seed + (u32)(i >> 32))), b = mix(a + 0x9e3779b9u);
  return sqrtf(-2.f * __logf(((a >> 8) + 1) * 5.9604645e-8f)) * __cosf(6.2831853f * (b >> 8) * 5.9604645e-8f);
}
extern "C" __global__ void fill_bf16(u16* p, i64 n, float scale, u32 seed) {
  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) p[i] = (u16)(pair(normal(i, seed) * scale, 0.f));
}
extern "C" __global__ void fill_f32(float* p, i64 n, float scale, float shift, u32 seed) {
  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) p[i] = normal(i, seed) * scale + shift;
}
__device__ void account(double* out, double d, double s) {
  for (int k = 16; k; k >>= 1) { d += __shfl_xor_sync(~0u, d, k); s += __shfl_xor_sync(~0u, s, k); }
  if ((threadIdx.x & 31) == 0) { atomicAdd(out, d); atomicAdd(out + 1, s); }
}
__device__ float value(const u16* p, i64 i, int half) {
  float x = __uint_as_float((u32)p[i] << 16);
  if (half) asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(p[i]));
  return x;
}
extern "C" __global__ void difference_16bit(const u16* a, const u16* b, i64 n, double* out, int half) {
  double d = 0, s = 0;
  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
    const float x = value(a, i, half), y = value(b, i, half); d += (double)((x - y) * (x - y)); s += (double)(y * y);
  }
  account(out, d, s);
}
extern "C" __global__ void difference_f32(const float* a, const float* b, i64 n, double* out) {
  double d = 0, s = 0;
  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) { d += (double)((a[i] - b[i]) * (a[i] - b[i])); s += (double)(b[i] * b[i]); }
  account(out, d, s);
}
)cuda";

Module module_for(int device_index) {
  static std::mutex mutex;
  static std::map<int, Module> modules;
  std::lock_guard lock(mutex);
  Module& m = modules[device_index];
  if (!m) {
    const Compiled c = compile(source, {});
    CODA_CUDA(cuModuleLoadData, &m, c.code.data());
  }
  return m;
}

constexpr unsigned many_blocks = 132 * 8;

}  // namespace

Passes::Passes(int device_index) : device_(device_index) {
  ContextScope scope(device_index);
  module_ = module_for(device_index);
}

void Passes::enqueue(const std::string& name, unsigned blocks, Stream stream, std::vector<void*> arguments) const {
  ContextScope scope(device_);
  Function f = nullptr;
  CODA_CUDA(cuModuleGetFunction, &f, module_, name.c_str());
  const LaunchConfig config{blocks, 1, 1, 256, 1, 1, 0, stream, nullptr, 0};
  CODA_CUDA(cuLaunchKernelEx, &config, f, arguments.data(), nullptr);
}

void Passes::fill_bf16(void* to, std::int64_t count, float scale, std::uint32_t seed, Stream stream) const {
  enqueue("fill_bf16", many_blocks, stream, {&to, &count, &scale, &seed});
}

void Passes::fill_f32(void* to, std::int64_t count, float scale, float shift, std::uint32_t seed, Stream stream) const {
  enqueue("fill_f32", many_blocks, stream, {&to, &count, &scale, &shift, &seed});
}

double Passes::difference(DType dtype, const void* a, const void* b, std::int64_t count) const {
  ContextScope scope(device_);
  DeviceBuffer sums(device_, 16);
  OwnedStream stream(device_);
  CODA_CUDA(cuCtxSynchronize);
  CODA_CUDA(cuMemsetD8Async, sums.address(), static_cast<unsigned char>(0), std::size_t{16}, static_cast<Stream>(stream));
  void* out = sums.data();
  int half = dtype == DType::f16;
  if (dtype == DType::f32) enqueue("difference_f32", many_blocks, stream, {&a, &b, &count, &out});
  else enqueue("difference_16bit", many_blocks, stream, {&a, &b, &count, &out, &half});
  double host[2];
  CODA_CUDA(cuMemcpyDtoHAsync, host, sums.address(), std::size_t{16}, static_cast<Stream>(stream));
  CODA_CUDA(cuStreamSynchronize, static_cast<Stream>(stream));
  return std::sqrt(host[0] / std::max(host[1], 1e-300));
}

}  // namespace coda::cuda
