#include "harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coda::test {

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.rows; ++j)
      for (std::int64_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * b(j, k);
  return c;
}

double Arguments::uniform(double low, double high) {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * static_cast<double>(state_ >> 11) * 0x1p-53;
}

HostTensor& Arguments::add(const std::string& name, DType t, std::vector<std::int64_t> shape) {
  return tensors_.insert_or_assign(name, HostTensor(t, shape)).first->second;
}

Matrix Arguments::set(const std::string& name, Matrix m) {
  float* data = add(name, DType::f32, {m.rows, m.columns}).as<float>();
  for (double& x : m.values) x = *data++ = static_cast<float>(x);
  return m;
}

Vector Arguments::set(const std::string& name, Vector v) {
  float* data = add(name, DType::f32, {static_cast<std::int64_t>(v.size())}).as<float>();
  for (double& x : v) x = *data++ = static_cast<float>(x);
  return v;
}

Matrix Arguments::matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double low, double high) {
  Matrix m(rows, columns);
  for (double& x : m.values) x = uniform(low, high);
  return set(name, std::move(m));
}

Vector Arguments::vector(const std::string& name, std::int64_t size, double low, double high) {
  Vector v(static_cast<std::size_t>(size));
  for (double& x : v) x = uniform(low, high);
  return set(name, std::move(v));
}

double Arguments::scalar(const std::string& name, double value) {
  return *add(name, DType::f32, {}).as<float>() = static_cast<float>(value);
}

void Arguments::integers(const std::string& name, const std::vector<std::int64_t>& values) {
  std::copy(values.begin(), values.end(),
            add(name, DType::i64, {static_cast<std::int64_t>(values.size())}).as<std::int64_t>());
}

void Arguments::integer(const std::string& name, std::int64_t value, DType t) {
  HostTensor& tensor = add(name, t, {});
  if (t == DType::i64)
    *tensor.as<std::int64_t>() = value;
  else
    *tensor.as<std::int32_t>() = static_cast<std::int32_t>(value);
}

std::map<std::string, Tensor, std::less<>> Arguments::views() const {
  std::map<std::string, Tensor, std::less<>> views;
  for (const auto& [name, tensor] : tensors_) views.emplace(name, tensor.view());
  return views;
}

Program standard(std::string_view name, const ParamValues& params) {
  return load_program(name, params).with_dtype(DType::f32);
}

namespace {

Vector values_of(const Tensor& t) {
  Vector v(static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = load(t, static_cast<std::int64_t>(i));
  return v;
}

/// Arguments in slot order; those that the program doesn't have (operands of an option that is off) are dropped.
std::vector<Tensor> slots_of(const Program& p, const Arguments& arguments) {
  auto views = arguments.views();
  std::erase_if(views, [&](const auto& entry) { return !p.slot(entry.first); });
  return coda::bind(p, views);
}

}  // namespace

Results evaluate(const Program& p, const Arguments& arguments) {
  const std::vector<HostTensor> outputs = reference::evaluate(p, slots_of(p, arguments));
  Results results;
  for (std::size_t i = 0; i < outputs.size(); ++i) results[p.outputs[i].name] = values_of(outputs[i]);
  return results;
}

Results run_on_cpu(const Program& p, const Arguments& arguments) {
  std::vector<Tensor> slots = slots_of(p, arguments);
  const std::vector<HostTensor> shapes = reference::evaluate(p, slots);
  std::vector<HostTensor> outputs;
  const std::size_t first = slots.size() - p.outputs.size();
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const Tensor& like = shapes[i];
    HostTensor out(p.outputs[i].dtype, std::span(like.shape.data(), static_cast<std::size_t>(like.rank)));
    for (std::int64_t e = 0; e < out.numel(); ++e)
      store(out, e,
            !p.outputs[i].accumulate           ? std::nan("")
            : slots[first + i].data == nullptr ? 0
                                               : load(slots[first + i], e));
    slots[first + i] = out.view();
    outputs.push_back(std::move(out));
  }
  cpu::run(p, slots);
  Results results;
  for (std::size_t i = 0; i < outputs.size(); ++i) results[p.outputs[i].name] = values_of(outputs[i]);
  return results;
}

void expect_close(const Vector& got, const Vector& want, double tolerance, std::string_view what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 1;
  for (const double x : want)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) || std::isinf(want[i])) {
      EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
          << what << "[" << i << "]: " << got[i] << " instead of " << want[i];
      continue;
    }
    EXPECT_NEAR(got[i], want[i], tolerance * largest) << what << "[" << i << "]";
  }
}

void expect_outputs(const Program& p, const Arguments& arguments, const Results& expected, double tolerance) {
  const Results exact = evaluate(p, arguments), on_cpu = run_on_cpu(p, arguments);
  ASSERT_EQ(exact.size(), expected.size());
  for (const auto& [name, want] : expected) {
    ASSERT_TRUE(exact.contains(name)) << p.name << " has no output " << name;
    expect_close(exact.find(name)->second, want, tolerance, p.name + " " + name + " in fp64");
    // f32 sums over a dozen terms; fp8 outputs are checked where they are made.
    expect_close(on_cpu.find(name)->second, want, 1e-5, p.name + " " + name + " on the CPU engine");
  }
}

Vector gradient(const std::function<double(const Vector&)>& f, const Vector& x) {
  constexpr double h = 1e-3;
  Vector g(x.size()), at = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto shifted = [&](double by) {
      at[i] = x[i] + by;
      return f(at);
    };
    g[i] = (8 * (shifted(h) - shifted(-h)) - (shifted(2 * h) - shifted(-2 * h))) / (12 * h);
    at[i] = x[i];
  }
  return g;
}

}  // namespace coda::test
