#include "cuda/bench/cublaslt.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "coda/error.hpp"
#include "cuda/library.hpp"

namespace coda::cuda {
namespace {

// Opaque handles, and the one struct whose fields we read (cublasLt.h).
using Handle = struct cublasLtContext*;
using Desc = void*;
struct Heuristic {
  std::uint64_t algorithm[8];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
constexpr int compute_f32 = 68, real_f32 = 0, real_f16 = 2, real_bf16 = 14, compute_tf32 = 77;
constexpr int desc_transa = 3, desc_transb = 4, preference_workspace = 1;
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

struct Table {
  Library library;
  std::size_t (*cublasLtGetVersion)() = nullptr;
  int (*cublasLtCreate)(Handle*) = nullptr;
  int (*cublasLtDestroy)(Handle) = nullptr;
  int (*cublasLtMatmulDescCreate)(Desc*, int, int) = nullptr;
  int (*cublasLtMatmulDescDestroy)(Desc) = nullptr;
  int (*cublasLtMatmulDescSetAttribute)(Desc, int, const void*, std::size_t) = nullptr;
  int (*cublasLtMatrixLayoutCreate)(Desc*, int, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  int (*cublasLtMatrixLayoutDestroy)(Desc) = nullptr;
  int (*cublasLtMatmulPreferenceCreate)(Desc*) = nullptr;
  int (*cublasLtMatmulPreferenceDestroy)(Desc) = nullptr;
  int (*cublasLtMatmulPreferenceSetAttribute)(Desc, int, const void*, std::size_t) = nullptr;
  int (*cublasLtMatmulAlgoGetHeuristic)(Handle, Desc, Desc, Desc, Desc, Desc, Desc, int, Heuristic*, int*) = nullptr;
  int (*cublasLtMatmul)(Handle, Desc, const void*, const void*, Desc, const void*, Desc, const void*, const void*, Desc, void*, Desc, const void*, void*,
                        std::size_t, Stream) = nullptr;
};

const Table& table() {
  static const Table& t = [&]() -> const Table& {
    std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib/libcublasLt.so.13"};
    if (const char* named = std::getenv("CODA_CUBLASLT"); named && *named) names = {named};
    auto t = std::unique_ptr<Table>(new Table{.library = Library("cuBLASLt", names, "Install it, or name its file in CODA_CUBLASLT")});
#define CODA_BIND(name) t->library.bind(t->name, #name)
    CODA_BIND(cublasLtGetVersion); CODA_BIND(cublasLtCreate); CODA_BIND(cublasLtDestroy);
    CODA_BIND(cublasLtMatmulDescCreate); CODA_BIND(cublasLtMatmulDescDestroy); CODA_BIND(cublasLtMatmulDescSetAttribute);
    CODA_BIND(cublasLtMatrixLayoutCreate); CODA_BIND(cublasLtMatrixLayoutDestroy);
    CODA_BIND(cublasLtMatmulPreferenceCreate); CODA_BIND(cublasLtMatmulPreferenceDestroy); CODA_BIND(cublasLtMatmulPreferenceSetAttribute);
    CODA_BIND(cublasLtMatmulAlgoGetHeuristic); CODA_BIND(cublasLtMatmul);
#undef CODA_BIND
    return *t.release();
  }();
  return t;
}

void ok(int status, const char* call) {
  if (status) throw Error(ErrorKind::device, fmt::format("{} failed with status {}", call, status));
}

int real_of(DType t) {
  switch (t) {
    case DType::bf16: return real_bf16;
    case DType::f16: return real_f16;
    case DType::f32: return real_f32;
    default: throw Error(ErrorKind::unsupported, fmt::format("cuBLASLt is not asked for {}", name_of(t)));
  }
}

}  // namespace

struct CublasLt::State {
  Handle handle = nullptr;
  Desc operation = nullptr, a = nullptr, b = nullptr, d = nullptr;
  Heuristic choice{};
  float beta = 0;
  int device = 0;
  DeviceBuffer workspace;
};

CublasLt::CublasLt(const Shape& s, int device_index) : state_(std::make_unique<State>()) {
  const Table& t = table();
  ContextScope scope(device_index);
  State& x = *state_;
  x.device = device_index;
  x.beta = s.accumulate ? 1.0f : 0.0f;
  x.workspace = DeviceBuffer(device_index, workspace_bytes);
  ok(t.cublasLtCreate(&x.handle), "cublasLtCreate");
  ok(t.cublasLtMatmulDescCreate(&x.operation, s.input == DType::f32 ? compute_tf32 : compute_f32, real_f32), "cublasLtMatmulDescCreate");
  // The library is column-major: it computes Dᵀ = B·Aᵀ, and its first operand is our B.
  const int transpose_b = s.b_major == Major::k, transpose_a = s.a_major == Major::mn;
  ok(t.cublasLtMatmulDescSetAttribute(x.operation, desc_transa, &transpose_b, sizeof(int)), "cublasLtMatmulDescSetAttribute");
  ok(t.cublasLtMatmulDescSetAttribute(x.operation, desc_transb, &transpose_a, sizeof(int)), "cublasLtMatmulDescSetAttribute");
  auto layout = [&](Desc* out, DType type, std::int64_t rows, std::int64_t columns) {
    ok(t.cublasLtMatrixLayoutCreate(out, real_of(type), static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), rows), "cublasLtMatrixLayoutCreate");
  };
  if (s.b_major == Major::k) layout(&x.b, s.input, s.k, s.n);
  else layout(&x.b, s.input, s.n, s.k);
  if (s.a_major == Major::k) layout(&x.a, s.input, s.k, s.m);
  else layout(&x.a, s.input, s.m, s.k);
  layout(&x.d, s.output, s.n, s.m);
  Desc preference = nullptr;
  ok(t.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  ok(t.cublasLtMatmulPreferenceSetAttribute(preference, preference_workspace, &workspace_bytes, sizeof workspace_bytes), "cublasLtMatmulPreferenceSetAttribute");
  int found = 0;
  ok(t.cublasLtMatmulAlgoGetHeuristic(x.handle, x.operation, x.b, x.a, x.d, x.d, preference, 1, &x.choice, &found), "cublasLtMatmulAlgoGetHeuristic");
  t.cublasLtMatmulPreferenceDestroy(preference);
  if (found == 0) throw Error(ErrorKind::device, fmt::format("cuBLASLt has no algorithm for {} x {} x {}", s.m, s.n, s.k));
}

CublasLt::~CublasLt() {
  const Table& t = table();
  for (Desc d : {state_->a, state_->b, state_->d})
    if (d) t.cublasLtMatrixLayoutDestroy(d);
  if (state_->operation) t.cublasLtMatmulDescDestroy(state_->operation);
  if (state_->handle) t.cublasLtDestroy(state_->handle);
}

void CublasLt::enqueue(const void* a, const void* b, void* d, Stream stream) const {
  const State& x = *state_;
  const float alpha = 1;
  ok(table().cublasLtMatmul(x.handle, x.operation, &alpha, b, x.b, a, x.a, &x.beta, d, x.d, d, x.d, &x.choice.algorithm, x.workspace.data(), workspace_bytes, stream),
     "cublasLtMatmul");
}

std::string CublasLt::version() {
  const auto v = table().cublasLtGetVersion();
  return fmt::format("cuBLAS {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

}  // namespace coda::cuda
