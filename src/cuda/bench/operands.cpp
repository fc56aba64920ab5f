#include "cuda/bench/operands.hpp"

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "coda/error.hpp"

namespace coda::cuda {
namespace {

constexpr std::int64_t positions = 8192;

std::int64_t extent_of(const Extent& e, const BenchCase& c) {
  switch (e.kind) {
    case Extent::Kind::m: return c.m;
    case Extent::Kind::n: return c.n;
    case Extent::Kind::half_n: return c.n / 2;
    case Extent::Kind::twice_n: return 2 * c.n;
    case Extent::Kind::symbol: return positions;
    case Extent::Kind::number: return e.number;
  }
  return 0;
}

// q, k and v columns of the blocks: as many key as value heads.
std::int64_t rotated_columns(const BenchCase& c) { return c.k + (c.n - c.k) / 2; }

double scalar_value(std::string_view name, const BenchCase& c) {
  if (name == "ignore") return -100;
  if (name == "rotated") return double(rotated_columns(c));
  if (name == "q_columns") return double(c.k);
  if (name == "eps") return 1e-5;
  return 1;
}

}  // namespace

const Tensor& Operands::add_slot(Tensor t) {
  memory_.emplace_back(device_, static_cast<std::size_t>(t.numel()) * size_of(t.dtype));
  t.data = memory_.back().data();
  t.device = {DeviceType::cuda, device_};
  return slots_.emplace_back(t);
}

void Operands::add_unfused(const Slot& output, const Tensor& like) {
  unfused_.emplace(std::string(output.name), DeviceBuffer(device_, static_cast<std::size_t>(like.numel()) * size_of(like.dtype)));
}

bool TableOperands::has_unfused() const {
  for (const char* known : {"norm_swiglu", "residual_norm", "norm_rope", "norm_qknorm_rope", "norm_backward", "swiglu_backward", "weight_grad", "linear_cross_entropy"})
    if (what_.program == known) return true;
  return false;
}

TableOperands::TableOperands(const BenchCase& what, const Program& program, const Passes& passes, int device_index, std::uint32_t seed)
    : Operands(what, program, passes, device_index) {
  ContextScope scope(device_);
  std::mt19937_64 random(seed);
  for (const Slot& s : program.slots()) {
    std::vector<std::int64_t> shape;
    const Major major = s.role == Slot::Role::a ? what.a_major : s.role == Slot::Role::b ? what.b_major : Major::k;
    if (s.shape) for (const Extent& e : s.shape->extents) shape.push_back(extent_of(e, what));
    else shape = {s.role == Slot::Role::a ? what.m : what.n, what.k};
    if (shape.empty() && s.role == Slot::Role::operand) {
      host_.emplace_back(s.dtype, std::span<const std::int64_t>{});
      store(host_.back(), 0, scalar_value(s.name, what));
      slots_.push_back(host_.back().view());
      continue;
    }
    if (major == Major::mn) std::swap(shape[0], shape[1]);
    const Tensor rows = Tensor::contiguous(nullptr, s.dtype, shape);
    const Tensor t = add_slot(major == Major::mn ? rows.transposed() : rows);
    const std::int64_t count = t.numel();
    if (is_integer(s.dtype)) {
      std::vector<std::int64_t> values(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = s.name == "position" ? static_cast<std::int64_t>(i) % positions : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(what.n));
      if (s.dtype != DType::i64) throw Error(ErrorKind::internal, fmt::format("the bench has no values for '{}'", s.name));
      CODA_CUDA(cuMemcpyHtoDAsync, memory_.back().address(), values.data(), values.size() * sizeof values[0], nullptr);
      CODA_CUDA(cuCtxSynchronize);
    } else if (s.dtype == DType::bf16) {
      // Weights of a trained model are small: products of unit variance would overflow nothing but look unlike it.
      passes.fill_bf16(t.data, count, s.role == Slot::Role::b ? 0.02f : 1.0f, seed++, nullptr);
    } else {
      const bool vector = s.shape && s.shape->layout == Layout::row;
      passes.fill_f32(t.data, count, vector ? 0.1f : 1.0f, vector ? 1.0f : 0.0f, seed++, nullptr);
    }
    if (s.role == Slot::Role::output && has_unfused()) add_unfused(s, t);
  }
  product_ = DeviceBuffer(device_, static_cast<std::size_t>(what.m * what.n) * 2);
  CODA_CUDA(cuCtxSynchronize);
}

const void* TableOperands::data(std::string_view name) const { return slots_[static_cast<std::size_t>(*program_.slot(name))].data; }

void TableOperands::enqueue_unfused(const CublasLt& plain, const CublasLt* accumulating, Stream stream) const {
  const auto rows = static_cast<unsigned>(what_.m);
  int m = static_cast<int>(what_.m), n = static_cast<int>(what_.n);
  float eps = 1e-5f;
  const std::string& p = what_.program;
  if (p == "weight_grad") return accumulating->enqueue(a(), b(), unfused("dw"), stream);
  plain.enqueue(a(), b(), product_.data(), stream);
  void* acc = product_.data();
  auto in = [&](const char* name) { return const_cast<void*>(data(name)); };
  if (p == "norm_swiglu") {
    void *rstd = in("rstd"), *z = unfused("z"), *y = unfused("y");
    passes_.enqueue("swiglu", rows, stream, {&acc, &rstd, &z, &y, &n});
  } else if (p == "residual_norm") {
    void *residual = in("residual"), *w = in("w"), *x = unfused("x"), *h = unfused("h"), *rstd = unfused("rstd");
    passes_.enqueue("residual_norm", rows, stream, {&acc, &residual, &w, &x, &h, &rstd, &n, &eps});
  } else if (p == "norm_rope" || p == "norm_qknorm_rope") {
    int normed = p == "norm_qknorm_rope", rotated = static_cast<int>(rotated_columns(what_)), q_columns = static_cast<int>(what_.k);
    void *rstd = in("rstd"), *position = in("position"), *c = in("cos"), *s = in("sin"), *out = unfused("qkv");
    void *wq = normed ? in("wq") : acc, *wk = normed ? in("wk") : acc;
    passes_.enqueue("rope", rows, stream, {&acc, &rstd, &position, &c, &s, &wq, &wk, &out, &n, &rotated, &q_columns, &normed, &eps});
  } else if (p == "norm_backward") {
    void *x = in("x"), *dresidual = in("dresidual"), *w = in("w"), *rstd = in("rstd"), *zdz = in("zdz"), *dx = unfused("dx"), *h = unfused("h"), *dw = unfused("dw");
    const auto blocks = static_cast<unsigned>((what_.n + 2047) / 2048 * ((what_.m + 31) / 32));
    passes_.enqueue("norm_backward", blocks, stream, {&acc, &x, &dresidual, &w, &rstd, &zdz, &dx, &h, &dw, &m, &n});
  } else if (p == "swiglu_backward") {
    void *z = in("z"), *dz = unfused("dz"), *y = unfused("y"), *zdz = unfused("zdz");
    passes_.enqueue("swiglu_backward", rows, stream, {&acc, &z, &dz, &y, &zdz, &n});
  } else if (p == "linear_cross_entropy") {
    void *target = in("target"), *zmax = unfused("zmax"), *zsum = unfused("zsum"), *loss = unfused("loss");
    passes_.enqueue("cross_entropy", rows, stream, {&acc, &target, &zmax, &zsum, &loss, &n});
  }
}

void Operands::poison(Stream stream) {
  const auto declared = program_.slots();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].role != Slot::Role::output) continue;
    const std::size_t bytes = static_cast<std::size_t>(slots_[i].numel()) * size_of(slots_[i].dtype);
    const auto ours = reinterpret_cast<DevicePointer>(slots_[i].data);
    if (program_.outputs[static_cast<std::size_t>(declared[i].index)].accumulate) {
      if (auto it = unfused_.find(declared[i].name); it != unfused_.end()) CODA_CUDA(cuMemcpyAsync, it->second.address(), ours, bytes, stream);
    } else {
      CODA_CUDA(cuMemsetD8Async, ours, static_cast<unsigned char>(0xff), bytes, stream);
    }
  }
}

double Operands::difference(std::string& name) const {
  double worst = 0;
  const auto declared = program_.slots();
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].role != Slot::Role::output) continue;
    const auto it = unfused_.find(declared[i].name);
    const void* other = it != unfused_.end() ? it->second.data() : what_.program == "linear" ? product_.data() : nullptr;
    if (!other) continue;
    if (size_of(declared[i].dtype) == 1) continue;  // where a value falls between two of fp8's is a matter of luck
    const double d = passes_.difference(declared[i].dtype, slots_[i].data, other, slots_[i].numel());
    if (!(d <= worst)) {  // a NaN is the worst
      worst = d;
      name = declared[i].name;
    }
    if (std::isnan(d)) break;
  }
  return worst;
}

}  // namespace coda::cuda
