// coda print: a program's canonical text, with params set and outputs left out as asked.
#include <fmt/format.h>

#include "cli.hpp"
#include "program_json.hpp"

namespace coda::cli {

void add_print(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("print", "Print a program's canonical text");
  struct Options : ProgramOptions {
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  o->add_to(*sub);
  sub->add_flag("--json", o->json, "Machine-readable: the program's interface and its text");
  sub->footer("Examples:\n  coda print norm_rope --param D=64\n  coda print linear_cross_entropy --without logits");
  sub->callback([&action, o] {
    action = [o] {
      const Program p = o->load();
      if (!o->json) {
        write(print(p));
        return 0;
      }
      Json json = to_json(p);
      json["text"] = print(p);
      write_json(json);
      return 0;
    };
  });
}

}  // namespace coda::cli
