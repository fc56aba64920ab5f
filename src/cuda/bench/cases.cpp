// The shapes that speed is judged on.
#include <fmt/format.h>

#include "cuda/bench/bench.hpp"

namespace coda::cuda {

BenchCase own_case(const std::string& label, const Program& program, Extents e, std::map<std::string, std::int64_t, std::less<>> symbols) {
  BenchCase c{.group = "own", .model = "-", .product = "-", .form = "forward", .program = label, .m = e.m, .n = e.n, .k = e.k};
  c.own = std::make_shared<const Program>(program);
  c.symbols = std::move(symbols);
  return c;
}

std::string BenchCase::name() const { return own ? fmt::format("own/{}/{}x{}x{}", program, m, n, k) : fmt::format("{}/{}/{}/{}/{}", group, model, product, form, program); }

std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> all;
  constexpr std::int64_t tokens = 8192;
  struct Model { const char* name; std::int64_t width, ffn, qkv; };
  constexpr Model models[] = {{"1b", 2048, 8192, 3072}, {"8b", 4096, 14336, 6144}, {"70b", 8192, 28672, 10240}};
  auto add = [&](const char* group, const char* model, const char* product, const char* form, const char* program, std::int64_t m, std::int64_t n, std::int64_t k,
                 ParamValues params = {}) {
    const std::string f = form;
    // dx = dy·W reads W [N, K] by columns; dW = dyᵀ·x reads both operands by columns.
    all.push_back({group, model, product, form, program, std::move(params), m, n, k, f == "wgrad" ? Major::mn : Major::k, f == "forward" ? Major::k : Major::mn});
  };
  for (const Model& x : models) {
    struct Product { const char* name; std::int64_t out, in; };
    const Product products[] = {{"qkv", x.qkv, x.width}, {"o", x.width, x.width}, {"gate_up", 2 * x.ffn, x.width}, {"down", x.width, x.ffn}};
    for (const Product& p : products) {
      add("plain", x.name, p.name, "forward", "linear", tokens, p.out, p.in);
      add("plain", x.name, p.name, "dgrad", "linear", tokens, p.in, p.out);
      add("plain", x.name, p.name, "wgrad", "linear", p.out, p.in, tokens);
      add("fused", x.name, p.name, "wgrad", "weight_grad", p.out, p.in, tokens);
    }
    add("fused", x.name, "gate_up", "forward", "norm_swiglu", tokens, 2 * x.ffn, x.width);
    if (x.width > 2048) {  // heads of 128
      add("fused", x.name, "qkv", "forward", "norm_rope", tokens, x.qkv, x.width);
      add("fused", x.name, "qkv", "forward", "norm_qknorm_rope", tokens, x.qkv, x.width);
    }
    add("fused", x.name, "o", "forward", "residual_norm", tokens, x.width, x.width);
    add("fused", x.name, "down", "forward", "residual_norm", tokens, x.width, x.ffn);
    add("fused", x.name, "gate_up", "dgrad", "norm_backward", tokens, x.width, 2 * x.ffn);
    add("fused", x.name, "qkv", "dgrad", "norm_backward", tokens, x.width, x.qkv);
    add("fused", x.name, "down", "dgrad", "swiglu_backward", tokens, x.ffn, x.width);
  }
  for (const Model& x : {models[0], models[1]}) {
    add("plain", x.name, "lm_head", "forward", "linear", tokens, 128256, x.width);
    add("fused", x.name, "lm_head", "forward", "linear_cross_entropy", tokens, 128256, x.width);
  }
  add("small", "m512", "o", "forward", "linear", 512, 4096, 4096);
  add("small", "m1000", "o", "forward", "linear", 1000, 4096, 4096);
  add("small", "m2048", "o", "forward", "linear", 2048, 4096, 4096);
  add("small", "m4097", "o", "forward", "linear", 4097, 4096, 4096);
  add("small", "n1000", "o", "forward", "linear", 4096, 1000, 4096);
  add("small", "n2056", "o", "forward", "linear", 4096, 2056, 4096);
  add("small", "k736", "o", "forward", "linear", 4096, 4096, 736);
  add("small", "odd", "o", "forward", "linear", 1000, 2056, 736);
  add("small", "m512", "down", "dgrad", "linear", 512, 14336, 4096);
  add("small", "m1000", "gate_up", "wgrad", "linear", 4096, 4096, 1000);
  return all;
}

}  // namespace coda::cuda
