// Any bytes: parse() gives a program or an Error with a place, and a program round-trips through its text.
//   build/fuzz/parse_fuzz -dict=tests/fuzz/coda.dict -max_total_time=60 CORPUS programs
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "coda/text.hpp"

namespace {

[[noreturn]] void broken(const char* what, std::string_view text) {
  std::fprintf(stderr, "%s:\n%.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

void check_round_trip(const coda::Program& p) {
  const std::string text = coda::print(p);
  try {
    const coda::Program again = coda::parse(text);
    if (!(again == p)) broken("the printed program is another program", text);
    if (coda::print(again) != text) broken("the canonical text isn't canonical", text);
    if (again.structural_hash() != p.structural_hash()) broken("the printed program hashes differently", text);
    if (again.doc != p.doc) broken("the head comment changed", text);
  } catch (const coda::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    broken("the printed program doesn't parse", text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  coda::Program p;
  try {
    p = coda::parse(text);
  } catch (const coda::Error& e) {
    if (e.kind() == coda::ErrorKind::internal) broken("an internal error", text);
    if (e.where().line < 1 || e.where().column < 1) broken("an error without a place", text);
    return 0;
  }
  check_round_trip(p);
  if (p.outputs.size() > 1)
    for (const coda::Output& o : p.outputs) check_round_trip(p.without(o.name));
  return 0;
}
