// Runs a standard program on small tensors through the fp64 evaluator and the CPU engine, and compares both with
// numbers from a formula written out in the test.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coda/engine.hpp"
#include "coda/program.hpp"
#include "coda/tensor.hpp"
#include "coda/text.hpp"

namespace coda::test {

using Vector = std::vector<double>;

/// A plain row-major matrix of doubles.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  Vector values;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};

/// a · bᵀ
Matrix product(const Matrix& a, const Matrix& b);

/// Named tensors for one call. Everything drawn is f32, so that the formula sees the very numbers the program does.
class Arguments {
 public:
  explicit Arguments(std::uint64_t seed = 1) : state_(seed) {}

  /// Uniform in [low, high), rounded to f32, kept under `name` and returned.
  Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double low = -1, double high = 1);
  Vector vector(const std::string& name, std::int64_t size, double low = -1, double high = 1);
  double scalar(const std::string& name, double value);
  void integers(const std::string& name, const std::vector<std::int64_t>& values);
  void integer(const std::string& name, std::int64_t value, DType t = DType::i64);
  /// Given values, rounded to f32; the rounded ones are returned.
  Matrix set(const std::string& name, Matrix m);
  Vector set(const std::string& name, Vector v);

  std::map<std::string, Tensor, std::less<>> views() const;

 private:
  double uniform(double low, double high);
  HostTensor& add(const std::string& name, DType t, std::vector<std::int64_t> shape);

  std::uint64_t state_;
  std::map<std::string, HostTensor, std::less<>> tensors_;
};

using Results = std::map<std::string, Vector, std::less<>>;

/// The standard program `name` with A, B and every bf16 argument as f32.
Program standard(std::string_view name, const ParamValues& params = {});

/// Outputs by name, row-major, in fp64.
Results evaluate(const Program& p, const Arguments& arguments);
/// Outputs of the CPU engine; accumulating outputs start from the argument of their name, or 0.
Results run_on_cpu(const Program& p, const Arguments& arguments);

/// Every output of `p` must equal `expected`: in fp64 to `tolerance` of the largest value, on the CPU engine to what
/// f32 allows. The names must be the same set.
void expect_outputs(const Program& p, const Arguments& arguments, const Results& expected, double tolerance = 1e-11);

/// |got - want| <= tolerance * max(1, max |want|), element by element; NaN equals NaN.
void expect_close(const Vector& got, const Vector& want, double tolerance, std::string_view what);

/// The gradient of `f` at `x` by differences of fourth order.
Vector gradient(const std::function<double(const Vector&)>& f, const Vector& x);

}  // namespace coda::test
