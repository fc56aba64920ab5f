// A fused operator of one's own, y = relu(A·Bᵀ + bias)², written as text and run on the CPU.
#include <cmath>
#include <cstdio>

#include "coda/engine.hpp"
#include "coda/text.hpp"

constexpr const char* text = R"(
program relu_squared
  gemm A: f32[M, K], B: f32[N, K]
  in  bias: f32[N]
  r = relu(acc + bias)
  out y: f32[M, N] = r * r
)";

int main() try {
  const coda::Program program = coda::parse(text);

  const int M = 5, N = 7, K = 3;
  coda::HostTensor A(coda::DType::f32, {M, K}), B(coda::DType::f32, {N, K}), bias(coda::DType::f32, {N});
  coda::HostTensor y(coda::DType::f32, {M, N});
  for (int i = 0; i < M * K; ++i) A.as<float>()[i] = std::sin(static_cast<float>(i));
  for (int i = 0; i < N * K; ++i) B.as<float>()[i] = std::cos(static_cast<float>(i));
  for (int i = 0; i < N; ++i) bias.as<float>()[i] = 0.1F * static_cast<float>(i);

  coda::cpu::run(program, coda::bind(program, {{"A", A}, {"B", B}, {"bias", bias}, {"y", y}}));

  double error = 0;
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      double sum = bias.as<float>()[n];
      for (int k = 0; k < K; ++k) sum += static_cast<double>(A.as<float>()[m * K + k]) * B.as<float>()[n * K + k];
      const double expected = sum > 0 ? sum * sum : 0;
      error = std::fmax(error, std::fabs(y.as<float>()[m * N + n] - expected));
    }
  }
  std::printf("relu_squared: largest error %.1e\n", error);
  return error < 1e-5 ? 0 : 1;
} catch (const coda::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
