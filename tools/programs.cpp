// coda programs: the standard programs, each with the first line of its head comment.
#include <fmt/format.h>

#include "cli.hpp"
#include "program_json.hpp"

namespace coda::cli {
namespace {

std::string summary(const Program& p) {
  const std::string line = p.doc.substr(0, p.doc.find('\n'));
  const std::size_t start = line.find_first_not_of(' ');
  return start == std::string::npos ? "" : line.substr(start);
}

int list(bool json) {
  Table table({"program", "formula", "params"});
  Json all = Json::array();
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    if (json) {
      all.push_back(to_json(p));
      continue;
    }
    std::string params;
    for (const Param& param : p.params)
      params += fmt::format("{}{}={}", params.empty() ? "" : " ", param.name, param.value);
    table.row({name, summary(p), params});
  }
  if (json) {
    write_json(all);
  } else {
    write(table.text({1, 2}));
  }
  return 0;
}

}  // namespace

void add_programs(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("programs", "List the standard programs");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "Machine-readable: names, params, arguments");
  sub->footer("Examples:\n  coda programs\n  coda programs --json | jq '.[].name'");
  sub->callback([&action, json] { action = [json] { return list(*json); }; });
}

}  // namespace coda::cli
