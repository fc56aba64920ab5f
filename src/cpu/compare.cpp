// Errors against fp64 beside the unfused path's, and the rule that decides.
#include "coda/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/convert.hpp"

namespace coda {
namespace {

constexpr double f32_roundoff = 0x1p-24;

/// The value that a dtype holds for `x`.
double stored(double x, DType t) {
  switch (t) {
    case DType::f32: return static_cast<double>(static_cast<float>(x));
    case DType::bf16: return bf16_to_float(to_bf16(x));
    case DType::f16: return f16_to_float(to_f16(x));
    case DType::e4m3: return e4m3_to_float(to_e4m3(x));
    case DType::e5m2: return e5m2_to_float(to_e5m2(x));
    default: return x;
  }
}

double largest_of(DType t) {
  switch (t) {
    case DType::f32: return 0x1.fffffep127;
    case DType::bf16: return 0x1.fep127;
    case DType::f16: return 65504;
    case DType::e4m3: return 448;
    case DType::e5m2: return 57344;
    default: return 0x1p1023;
  }
}

bool same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

OutputError compare_one(const Output& o, const Tensor& exact, const Tensor& unfused, const Tensor& result) {
  OutputError e;
  e.name = o.name;
  double squares = 0, unfused_squares = 0, exact_squares = 0, largest = 0;
  std::int64_t samples = 0, first_fault = -1;
  const auto fault = [&](std::int64_t i) {
    ++e.faults;
    if (first_fault < 0) first_fault = i;
  };
  for (std::int64_t i = 0; i < exact.numel(); ++i) {
    const double want = load(exact, i), got = load(result, i), other = load(unfused, i);
    // Near the end of the range a value may round either way: that is decided by the f32 arithmetic.
    if (!std::isfinite(want) || std::fabs(want) > largest_of(o.dtype) * (1 - 0x1p-8)) {
      const double held = stored(want, o.dtype);
      const bool close = std::isfinite(want) && std::fabs(got - want) <= std::fabs(want) * 0x1p-6;
      if (!same(got, held) && !same(got, other) && !close) fault(i);
      continue;
    }
    if (!std::isfinite(got)) {
      if (!same(got, other)) fault(i);  // an intermediate past f32's range, for both
      continue;
    }
    ++samples;
    const double error = std::fabs(got - want);
    const double unfused_error = std::isfinite(other) ? std::fabs(other - want) : 0;
    squares += error * error;
    unfused_squares += unfused_error * unfused_error;
    exact_squares += want * want;
    largest = std::max(largest, std::fabs(want));
    if (error > e.max || e.worst < 0) e.worst = i;
    e.max = std::max(e.max, error);
    e.unfused_max = std::max(e.unfused_max, unfused_error);
  }
  if (first_fault >= 0) e.worst = first_fault;
  if (samples > 0) {
    const auto n = static_cast<double>(samples);
    e.rms = std::sqrt(squares / n);
    e.unfused_rms = std::sqrt(unfused_squares / n);
    e.scale = std::sqrt(exact_squares / n);
    // Two independent roundings of n samples differ in RMS by 0.45 / sqrt(n) relative, one standard deviation each:
    // the allowance is four of their difference.
    const double ratio = 1.1 + 2.5 / std::sqrt(n);
    e.ok = e.faults == 0 && e.rms <= ratio * e.unfused_rms + 2 * f32_roundoff * e.scale &&
           e.max <= 2 * e.unfused_max + 8 * f32_roundoff * largest;
  } else {
    e.ok = e.faults == 0;
  }
  return e;
}

}  // namespace

Expected expect(const Program& p, Slots slots) { return {reference::evaluate(p, slots), reference::unfused(p, slots)}; }

std::vector<OutputError> compare(const Program& p, const Expected& expected, std::span<const Tensor> outputs) {
  if (outputs.size() != p.outputs.size()) {
    throw Error(ErrorKind::shape, fmt::format("program {} has {} outputs, but {} were given to compare", p.name,
                                              p.outputs.size(), outputs.size()));
  }
  std::vector<OutputError> errors;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].data == nullptr && outputs[i].rank == 0) continue;
    const Tensor& exact = expected.exact[i].view();
    if (outputs[i].dtype != p.outputs[i].dtype || outputs[i].rank != exact.rank || outputs[i].shape != exact.shape) {
      throw Error(ErrorKind::shape,
                  fmt::format("output {} should be {} of the shape of {}, but is {}", p.outputs[i].name,
                              name_of(p.outputs[i].dtype), describe(exact), describe(outputs[i])));
    }
    errors.push_back(compare_one(p.outputs[i], exact, expected.unfused[i], outputs[i]));
  }
  return errors;
}

std::string describe(const OutputError& e) {
  return fmt::format(
      "{}: rms {:.3e} (unfused {:.3e}), max {:.3e} (unfused {:.3e}), scale {:.3e}, {} faults, worst at {}: {}", e.name,
      e.rms, e.unfused_rms, e.max, e.unfused_max, e.scale, e.faults, e.worst, e.ok ? "ok" : "FAILED");
}

}  // namespace coda
