// Which outputs a call wants, what they need, and the ones that finish expressions give.
#pragma once
#include "cpu/sweep.hpp"

namespace coda::cpu {

/// Whether an output's slot was given, and isn't empty.
bool wanted(const Program& p, Slots slots, std::size_t output);
/// The reductions over n, m or mn that the wanted finish outputs are made of.
std::vector<ValueId> needed_reductions(const Program& p, Slots slots);
/// Evaluates and stores the wanted finish outputs.
void finish_outputs(const Program& p, Slots slots, const Extents& e, Results results);

}  // namespace coda::cpu
