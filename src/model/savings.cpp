// Bytes from the programs that a step runs, times from the clock: see savings.hpp.
#include "model/savings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "coda/explain.hpp"
#include "model/llama.hpp"
#include "model/unfused_llama.hpp"
#include "ops/launch.hpp"

namespace coda {
namespace model {
namespace {

/// Bytes of one call: of the program without the outputs that this call doesn't compute.
void count(const Program& whole, Slots slots, FusionSavings& savings) {
  const Extents extents = check_arguments(whole, slots);
  if (extents.k == 0) return;  // a pass without a product: nothing is fused
  Program p = whole;
  Sizes sizes{{"M", extents.m}, {"N", extents.n}, {"K", extents.k}};
  for (const Slot& slot : whole.slots()) {
    const Tensor& t = slots[static_cast<std::size_t>(*whole.slot(slot.name))];
    if (slot.role == Slot::Role::output && !ops::given(t)) p = p.without(slot.name);
    if (slot.shape == nullptr) continue;
    for (std::size_t d = 0; d < slot.shape->extents.size(); ++d) {
      const Extent& e = slot.shape->extents[d];
      if (e.kind == Extent::Kind::symbol) sizes[e.symbol] = t.shape[d];
    }
  }
  const Explanation e = explain(p, sizes);
  const std::int64_t fused = total_bytes(e.fused);
  // Library products add to their result themselves: a weight's gradient costs the same either way.
  const std::int64_t separate = p.name == "weight_grad" ? fused : total_bytes(e.one_pass);
  auto it =
      std::find_if(savings.programs.begin(), savings.programs.end(), [&](auto& t) { return t.program == p.name; });
  if (it == savings.programs.end()) it = savings.programs.insert(it, ProgramTraffic{.program = p.name});
  it->calls += 1;
  it->fused_bytes += fused;
  it->separate_bytes += separate;
  savings.fused_bytes += fused;
  savings.separate_bytes += separate;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const std::size_t n = x.size();
  return n % 2 == 1 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

}  // namespace

FusionSavings measure_savings(const Parameters<float>& parameters, std::span<const std::uint8_t> text,
                              std::int64_t batch, std::int64_t sequence, std::uint64_t seed, std::int64_t steps) {
  FusionSavings savings;
  bool counting = true;
  ops::Context context;
  context.observe = [&](const Program& p, Slots slots) {
    if (counting) count(p, slots, savings);
  };
  const LlamaConfig& config = parameters.config();
  Llama fused(config, batch, sequence, context);
  UnfusedLlama<float> unfused(config, batch, sequence);
  Parameters<float> gradients(config);
  const auto seconds_of = [&](auto& m, const io::Batch& b, double& loss) {
    const auto start = std::chrono::steady_clock::now();
    loss = m.loss(parameters, b.tokens, b.targets, &gradients);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<double> fused_seconds, unfused_seconds;
  for (std::int64_t i = 0; i <= steps; ++i) {  // the first of each only warms up
    const io::Batch b = io::random_batch(text, batch, sequence, seed, static_cast<std::uint64_t>(i));
    double fused_loss = 0, unfused_loss = 0;
    const double f = seconds_of(fused, b, fused_loss), u = seconds_of(unfused, b, unfused_loss);
    counting = false;
    savings.largest_loss_difference =
        std::max(savings.largest_loss_difference, std::abs(fused_loss - unfused_loss) / std::abs(unfused_loss));
    if (i == 0) continue;
    fused_seconds.push_back(f);
    unfused_seconds.push_back(u);
  }
  savings.fused_seconds = median(fused_seconds);
  savings.unfused_seconds = median(unfused_seconds);
  return savings;
}

}  // namespace model

std::string format(const FusionSavings& s) {
  const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  const auto saved = [](double fused, double separate) { return 100 * (1 - fused / separate); };
  std::string out =
      fmt::format("{:<24}{:>8}{:>15}{:>15}{:>9}\n", "program", "calls", "fused MB", "separate MB", "saved");
  for (const ProgramTraffic& p : s.programs) {
    out += fmt::format("{:<24}{:>8}{:>15.1f}{:>15.1f}{:>8.0f}%\n", p.program, p.calls, megabytes(p.fused_bytes),
                       megabytes(p.separate_bytes),
                       saved(static_cast<double>(p.fused_bytes), static_cast<double>(p.separate_bytes)));
  }
  out += fmt::format("{:<24}{:>8}{:>15.1f}{:>15.1f}{:>8.0f}%\n", "bytes moved, one step", "", megabytes(s.fused_bytes),
                     megabytes(s.separate_bytes),
                     saved(static_cast<double>(s.fused_bytes), static_cast<double>(s.separate_bytes)));
  out += fmt::format("{:<24}{:>8}{:>12.1f} ms{:>12.1f} ms{:>8.0f}%\n", "time measured, one step", "",
                     s.fused_seconds * 1e3, s.unfused_seconds * 1e3, saved(s.fused_seconds, s.unfused_seconds));
  out += fmt::format("Losses of the two agree to {:.1e} (relative).\n", s.largest_loss_difference);
  return out;
}

}  // namespace coda
