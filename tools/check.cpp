// coda check: parse and verify program files, all of them, before saying which failed.
#include <fmt/format.h>

#include "cli.hpp"
#include "program_json.hpp"

namespace coda::cli {
namespace {

int check_files(const std::vector<std::string>& files, const ProgramOptions& options, bool json) {
  Json all = Json::array();
  int failures = 0;
  for (const std::string& file : files) {
    Json entry{{"file", file}};
    try {
      const Program p = options.load(file);
      entry["ok"] = true;
      entry["program"] = to_json(p);
      if (!json) write(fmt::format("{}: program {} is well-formed", file, p.name));
    } catch (const Error& e) {
      ++failures;
      entry["ok"] = false;
      entry["error"] = describe_error(e);
      fmt::print(stderr, "coda: error: {}\n", e.what());
    }
    all.push_back(std::move(entry));
  }
  if (json) write_json(all);
  return failures == 0 ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("check", "Check that programs parse and obey the language's rules");
  struct Options : ProgramOptions {
    std::vector<std::string> files;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  sub->add_option("FILE", o->files, "Files or names of standard programs")->required();
  o->add_to(*sub, false);
  sub->add_flag("--json", o->json, "Machine-readable: one entry a file");
  sub->footer("Examples:\n  coda check my_program.coda\n  coda check *.coda --json");
  sub->callback([&action, o] { action = [o] { return check_files(o->files, *o, o->json); }; });
}

}  // namespace coda::cli
