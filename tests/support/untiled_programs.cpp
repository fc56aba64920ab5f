#include "support/untiled_programs.hpp"

#include "coda/text.hpp"

namespace coda::test {
namespace {

struct Case { const char *name, *text, *reason; };
constexpr Case cases[] = {
    {"two pairings",
     "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  a, b = split(acc, halves)\n  z = join(a * b, a - b, halves)\n  c, d = split(z, heads(6, 4))\n"
     "  out y: bf16[M, N] = join(c + d, c * d, heads(6, 4)) + acc\n  out h: bf16[M, N/2] = a\n  out g: f32[M, N/2] = d\n",
     "columns are paired in two ways"},
    {"odd segments",
     "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in w: f32[N]\n  s = sum(acc * acc, over segment(5))\n  t = max(acc * rsqrt(s + 1.0) * w, over segment(15))\n"
     "  out y: bf16[M, N] = acc * rsqrt(s / 5 + 1e-6) + t\n",
     "segment(5)"},
    {"segments of one column", "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  out y: f32[M, N] = sum(acc * acc, over segment(1))\n", "segment(1)"},
    {"segments at twice the width",
     "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in x: bf16[M, 2N]\n  s = sum(x, over segment(4))\n  a, b = split(x * s, heads(4))\n  out y: bf16[M, N] = acc * a + b\n"
     "  out z: bf16[M, 2N] = join(a, acc, heads(4))\n  finish c: f32[2N] = sum(x, over m)\n",
     "at twice the width"},
    {"segments of halves and more columns than a tile has",
     "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  a, b = split(acc, halves)\n  s = sum(a * b, over segment(304))\n  out y: bf16[M, N/2] = a * s\n", "segments of 304 columns"},
    {"softmaxes and picks of odd segments",
     "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in index: i32[M]\n  in wanted: i64[N]\n  best, total = softmax_stats(acc, over segment(6))\n"
     "  chosen = pick(acc * 2.0, index, over segment(6))\n  out y: f32[M, N] = exp(acc - best) / total + chosen + pick(acc, (col // 6) % 6, over segment(6), 3)\n"
     "  finish c: f32[N] = pick(acc + 1.0, wanted, over m, -100)\n  finish r: f32[M] = pick(acc, index, over n)\n",
     "segment(6)"},
    {"rows finished with the matrix",
     "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in g: f32[M]\n  all = max(abs(acc), over mn)\n  finish r: f32[M] = sum(acc, over n) / all\n  finish c: f32[N] = sum(acc, over m) / all\n"
     "  finish s: f32[M] = g * all\n  finish t: f32[] = all + 1.0\n  out y: bf16[N, M] = acc\n",
     "reductions over different extents"},
};

struct Option { const char *name, *program; ParamValues params; const char* reason; };
const Option options[] = {
    {"rotary of GPT-NeoX", "norm_rope", {{"D", 80}, {"R", 32}}, "pair up in runs of 8"},
    {"heads of 40", "norm_rope", {{"D", 40}}, "pair up in runs of 20"},
    {"odd runs", "norm_rope", {{"D", 96}, {"R", 18}}, "pair up in runs of 3"},
    {"heads of 20 of which 6 rotate", "norm_rope", {{"D", 20}, {"R", 6}}, "pair up in runs of 1"},
    {"norms of heads of 12", "norm_qknorm_rope", {{"D", 12}}, "pair up in runs of 6"},
    {"norms of heads of 80", "norm_qknorm_rope", {{"D", 80}}, "pair up in runs of 40"},
};

}  // namespace

std::vector<UntiledProgram> untiled_programs() {
  std::vector<UntiledProgram> all;
  for (const Case& c : cases) all.push_back({c.name, parse(c.text), c.reason});
  for (const Option& o : options) all.push_back({o.name, load_program(o.program, o.params), o.reason});
  return all;
}

}  // namespace coda::test
