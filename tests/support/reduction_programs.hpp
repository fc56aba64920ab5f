// Programs that the standard ones leave out: picks and softmax statistics over n, over m and over segments, in every way
// that columns pair up, and the functions that no standard program calls. Every engine runs them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "coda/text.hpp"

namespace coda::test {

inline std::vector<Program> reduction_programs() {
  constexpr std::string_view texts[] = {
      R"(program segments
  gemm A: bf16[M, K], B: bf16[N, K]
  in   chosen: i32[N]
  in   place: i64[M]
  in   ignore: i32[]
  m, s = softmax_stats(acc, over segment(32))
  p = exp(acc - m) / s
  out  p: bf16[M, N] = p
  out  z: f32[M, N] = p - pick(p, place, over segment(32), ignore) + pick(acc, col // 64 % 16, over segment(16))
  finish c: f32[N] = pick(p, chosen, over m, ignore) + sum(p, over m)
)",
      R"(program heads_of_64
  gemm A: bf16[M, K], B: bf16[N, K]
  in   chosen: i64[N]
  in   place: i32[]
  in   w: bf16[M, N]
  m, s = softmax_stats(acc * w, over segment(64))
  a, b = split(acc - pick(acc, place, over segment(64)), heads(64))
  y = join(a + b, a * b, heads(64))
  out  y: bf16[M, N] = y / s + m
  finish c: f32[N] = pick(y, chosen, over m)
)",
      R"(program neighbours
  gemm A: bf16[M, K], B: bf16[N, K]
  in   chosen: i64[N]
  in   place: i32[M]
  in   left: f32[N/2]
  in   right: f32[N/2]
  a, b = split(acc - pick(acc, place, over segment(32)), adjacent)
  m, s = softmax_stats(a * b, over segment(16))
  h = a * s + m
  out  y: bf16[M, N/2] = h
  finish c: f32[N] = pick(join(h, b, adjacent), chosen, over m) * join(left, right, adjacent)
  finish e: f32[N/2] = sum(h, over m) + left
)",
      R"(program halves_of_columns
  gemm A: bf16[M, K], B: bf16[N, K]
  in   chosen: i32[N]
  in   left: f32[N/2]
  in   right: f32[N/2]
  a, b = split(acc - pick(acc, 3, over segment(32), 3), halves)
  m, s = softmax_stats(a * b, over segment(16))
  h = a * s + m
  out  y: bf16[M, N/2] = h
  finish c: f32[N] = pick(join(h, b, halves), chosen, over m) * join(left, right, halves)
)",
      R"(program loss_of_columns
  gemm A: bf16[M, K], B: bf16[N, K]
  in   chosen: i64[N]
  m, s = softmax_stats(acc, over m)
  finish loss: f32[N] = log(s) - (pick(acc, chosen, over m, -100) - m)
)",
      R"(program picks_alone
  gemm A: bf16[M, K], B: bf16[N, K]
  in   target: i32[M]
  in   chosen: i32[N]
  finish first: f32[M] = pick(acc * 0.5, target, over n)
  finish last: f32[N] = pick(acc, chosen, over m) + pick(acc * acc, M - 1 - col % M, over m)
)",
      R"(program functions
  gemm A: bf16[M, K], B: bf16[N, K]
  z = acc * 3.0
  out  a: f32[M, N] = softplus(z)
  out  b: f32[M, N] = expm1(clamp(z, -9.0, 5.0))
  out  c: f32[M, N] = log1p(z * z) + log1p(exp(-abs(z)))
)",
  };
  std::vector<Program> programs;
  for (const std::string_view text : texts) programs.push_back(parse(text));
  return programs;
}

inline std::vector<std::string> names_of(const std::vector<Program>& programs) {
  std::vector<std::string> names;
  for (const Program& p : programs) names.push_back(p.name);
  return names;
}
inline Program reduction_program(std::string_view name) {
  for (Program& p : reduction_programs())
    if (p.name == name) return p;
  throw Error(ErrorKind::value, std::string(name));
}

}  // namespace coda::test
