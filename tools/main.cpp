// The coda command: reads the command line, runs one subcommand, turns exceptions into messages and exit codes.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "cli.hpp"

namespace {

int fail(std::string_view message, int code) {
  fmt::print(stderr, "coda: error: {}\n", message);
  return code;
}

/// A full disk or a closed pipe behind stdout shows only when the buffer is flushed.
int finish_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return fail("writing to standard output failed; is the disk full?", 1);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace coda::cli;
  CLI::App app{
      "Transformer operators as epilogues of matrix products: check, run, explain, verify, time and train with "
      "programs.\nFILE is a .coda file or the name of a standard program (see `coda programs`)."};
  app.name("coda");
  app.require_subcommand(1);
  app.set_version_flag("--version", "coda " CODA_VERSION);
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  coda programs\n"
      "  coda explain norm_swiglu --extents M=8192,N=28672,K=4096\n"
      "  coda verify --all\n"
      "  coda run residual_norm --in tensors.safetensors --set eps=1e-6 --out results.safetensors\n"
      "Exit codes: 0 success, 1 failure, 2 wrong use. `coda COMMAND --help` says more.");

  // A file that grows past the process's limit is then an error of the write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);

  Action action;
  add_programs(app, action);
  add_check(app, action);
  add_print(app, action);
  add_run(app, action);
  add_explain(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_train(app, action);
  add_emit(app, action);
  add_compile(app, action);

  try {
    // CLI11 would say that a command is missing, not which word isn't one.
    if (argc > 1 && argv[1][0] != '-') {
      std::string names;
      bool known = false;
      for (const CLI::App* sub : app.get_subcommands({})) {
        known = known || sub->get_name() == argv[1];
        names += (names.empty() ? "" : ", ") + sub->get_name();
      }
      if (!known) throw UsageError(fmt::format("no command '{}'; there are {}\nRun coda --help for examples.", argv[1], names));
    }
    app.parse(argc, argv);
    return finish_output(action());
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return finish_output(app.exit(e));  // --help, --version
    std::string command = "coda";
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    return fail(fmt::format("{}\nRun {} --help for its options and examples.", e.what(), command), 2);
  } catch (const UsageError& e) {
    return fail(e.what(), 2);
  } catch (const std::bad_alloc&) {
    return fail("out of memory; use smaller extents", 1);
  } catch (const std::exception& e) {
    return fail(e.what(), 1);
  }
}
