#include "program_json.hpp"

#include <fmt/format.h>

namespace coda::cli {
namespace {

std::string text_of(const Extent& e) {
  switch (e.kind) {
    case Extent::Kind::m: return "M";
    case Extent::Kind::n: return "N";
    case Extent::Kind::half_n: return "N/2";
    case Extent::Kind::twice_n: return "2N";
    case Extent::Kind::symbol: return e.symbol;
    case Extent::Kind::number: return std::to_string(e.number);
  }
  return "";
}

}  // namespace

std::string shape_text(const Slot& slot) {
  if (slot.role == Slot::Role::a) return "[M, K]";
  if (slot.role == Slot::Role::b) return "[N, K]";
  std::vector<std::string> extents;
  for (const Extent& e : slot.shape->extents) extents.push_back(text_of(e));
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

Json to_json(const Program& p) {
  Json params = Json::object();
  for (const Param& param : p.params) params[param.name] = param.value;
  Json arguments = Json::array();
  for (const Slot& slot : p.slots()) {
    std::string role = "operand";
    if (slot.role == Slot::Role::output) {
      const Output& o = p.outputs[static_cast<std::size_t>(slot.index)];
      role = o.finish ? "finish" : o.accumulate ? "accumulate" : "out";
    }
    arguments.push_back(
        {{"name", slot.name}, {"role", role}, {"dtype", coda::name_of(slot.dtype)}, {"shape", shape_text(slot)}});
  }
  return {{"name", p.name},
          {"doc", p.doc},
          {"params", params},
          {"arguments", arguments},
          {"hash", fmt::format("{:016x}", p.structural_hash())}};
}

}  // namespace coda::cli
