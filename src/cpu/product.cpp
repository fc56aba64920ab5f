// oneDNN products on strided panels: primitive cache, packing, conversion.
#include "cpu/product.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "coda/error.hpp"
#include "cpu/memory.hpp"

namespace coda::cpu {
namespace {

dnnl::engine& shared_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// Which dimension is contiguous, as oneDNN can take it; `neither` is packed first.
enum class Major : std::uint8_t { k, rows, neither };

Major major_of(const Panel& p) {
  if (p.k_stride == 1 || p.k == 1) {
    if (p.rows == 1 || p.row_stride >= p.k) return Major::k;
  }
  if (p.row_stride == 1 || p.rows == 1) {
    if (p.k == 1 || p.k_stride >= p.rows) return Major::rows;
  }
  return Major::neither;
}

std::int64_t leading(const Panel& p, Major major) {
  if (major == Major::k) return p.rows == 1 ? p.k : p.row_stride;
  return p.k == 1 ? p.rows : p.k_stride;
}

struct Key {
  std::int64_t m, n, k, lda, ldb, ldc;
  Major a, b;
  bool bf16, accumulate;
  int threads;
  auto operator<=>(const Key&) const = default;
};

struct Primitive {
  dnnl::matmul matmul;
  dnnl::memory::desc a, b, c, scratch;
};

/// An f32 copy of a panel without gaps, in the panel's own major so that runs of memory are converted at a time.
Panel pack(const Panel& p, std::vector<float>& storage) {
  storage.resize(static_cast<std::size_t>(p.rows * p.k));
  const bool by_rows = p.row_stride == 1 && p.k_stride != 1;
  const std::int64_t runs = by_rows ? p.k : p.rows, length = by_rows ? p.rows : p.k;
  for (std::int64_t i = 0; i < runs; ++i) {
    const Panel run = by_rows ? p.slice_k(i, 1) : p.slice_rows(i, 1);
    load_run(kernels(), p.dtype, run.data, by_rows ? 1 : p.k_stride, length, storage.data() + i * length);
  }
  if (by_rows) return {storage.data(), DType::f32, p.rows, p.k, 1, p.rows};
  return {storage.data(), DType::f32, p.rows, p.k, p.k, 1};
}

}  // namespace

Panel Panel::of(const Tensor& t) { return {t.data, t.dtype, t.shape[0], t.shape[1], t.stride[0], t.stride[1]}; }

Panel Panel::slice_rows(std::int64_t begin, std::int64_t count) const {
  Panel p = *this;
  p.data = static_cast<const char*>(data) + begin * row_stride * static_cast<std::int64_t>(size_of(dtype));
  p.rows = count;
  return p;
}

Panel Panel::slice_k(std::int64_t begin, std::int64_t count) const {
  Panel p = *this;
  p.data = static_cast<const char*>(data) + begin * k_stride * static_cast<std::int64_t>(size_of(dtype));
  p.k = count;
  return p;
}

bool multiplies_bf16() {
  static const bool yes = [] {
    const auto isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  return yes;
}

struct Product::State {
  dnnl::stream stream{shared_engine()};
  std::map<Key, Primitive> primitives;
  std::vector<std::byte> scratch;
  std::vector<float> packed_a, packed_b;

  const Primitive& primitive(const Key& key) {
    const auto found = primitives.find(key);
    if (found != primitives.end()) return found->second;
    if (primitives.size() >= 64) primitives.clear();  // oneDNN keeps its own cache of the code behind them
    using Md = dnnl::memory::desc;
    const auto type = key.bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    Primitive p;
    p.a = Md({key.m, key.k}, type, key.a == Major::k ? dnnl::memory::dims{key.lda, 1} : dnnl::memory::dims{1, key.lda});
    p.b = Md({key.k, key.n}, type, key.b == Major::k ? dnnl::memory::dims{1, key.ldb} : dnnl::memory::dims{key.ldb, 1});
    p.c = Md({key.m, key.n}, dnnl::memory::data_type::f32, dnnl::memory::dims{key.ldc, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(p.a, p.b, p.c), attributes, shared_engine());
    p.scratch = description.scratchpad_desc();
    p.matmul = dnnl::matmul(description);
    return primitives.emplace(key, std::move(p)).first->second;
  }

  void multiply(const Panel& a, const Panel& b, float* c, std::int64_t ldc, bool accumulate) {
    const Major am = major_of(a), bm = major_of(b);
    const Primitive& p = primitive({a.rows, b.rows, a.k, leading(a, am), leading(b, bm), a.rows == 1 ? b.rows : ldc, am,
                                    bm, a.dtype == DType::bf16, accumulate, omp_get_max_threads()});
    if (scratch.size() < p.scratch.get_size()) scratch.resize(p.scratch.get_size());
    const auto memory = [&](const dnnl::memory::desc& d, const void* data) {
      return dnnl::memory(d, shared_engine(), const_cast<void*>(data));
    };
    p.matmul.execute(stream, {{DNNL_ARG_SRC, memory(p.a, a.data)},
                              {DNNL_ARG_WEIGHTS, memory(p.b, b.data)},
                              {DNNL_ARG_DST, memory(p.c, c)},
                              {DNNL_ARG_SCRATCHPAD, memory(p.scratch, scratch.data())}});
    stream.wait();
  }

  /// `p` itself where oneDNN can take it, else a packed f32 copy in `storage`.
  static Panel ready(const Panel& p, std::vector<float>& storage) {
    if (p.dtype == DType::f32 && major_of(p) != Major::neither) return p;
    return pack(p, storage);
  }
};

Product::Product() : state_(std::make_unique<State>()) {}
Product::~Product() = default;

Product& Product::of_this_thread() {
  thread_local Product product;
  return product;
}

void Product::operator()(const Panel& a, const Panel& b, float* c, std::int64_t ldc) {
  if (a.rows == 0 || b.rows == 0) return;
  if (a.k == 0) {
    for (std::int64_t i = 0; i < a.rows; ++i) std::fill_n(c + i * ldc, b.rows, 0.0f);
    return;
  }
  const auto direct = [](const Panel& p) { return major_of(p) != Major::neither; };
  try {
    const bool bf16 = a.dtype == DType::bf16 && b.dtype == DType::bf16 && multiplies_bf16();
    if (direct(a) && direct(b) && (bf16 || (a.dtype == DType::f32 && b.dtype == DType::f32))) {
      state_->multiply(a, b, c, ldc, false);
      return;
    }
    constexpr std::int64_t block = 2048;  // bounds the packed copies, whatever K is
    for (std::int64_t k = 0; k < a.k; k += block) {
      const std::int64_t count = std::min(block, a.k - k);
      state_->multiply(State::ready(a.slice_k(k, count), state_->packed_a),
                       State::ready(b.slice_k(k, count), state_->packed_b), c, ldc, k > 0);
    }
  } catch (const dnnl::error& e) {
    throw Error(ErrorKind::internal, std::string("oneDNN refused a product: ") + e.what());
  }
}

}  // namespace coda::cpu
