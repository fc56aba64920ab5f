// coda run: a program on tensors from a safetensors file, by name; results to another.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "cli.hpp"
#include "coda/safetensors.hpp"
#include "device.hpp"
#include "program_json.hpp"

namespace coda::cli {
namespace {

struct Options : ProgramOptions {
  std::string in, out;
  std::vector<std::string> set;
  std::string device = "cpu";
  int threads = 0;
  bool allow_nan = false, json = false;
};

/// The arguments of one call: tensors that were read or set, and where each slot finds its own.
class Arguments {
 public:
  explicit Arguments(const Program& p) : p_(p), slots_(p.slots()), views_(slots_.size()), tensors_(slots_.size()) {}

  void read(const SafetensorsFile& file) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const std::string name(slots_[i].name);
      if (is_fresh_output(slots_[i]) || !file.contains(name)) continue;
      tensors_[i] = file.read(name);
      views_[i] = tensors_[i].view();
      if (slots_[i].shape && slots_[i].shape->layout == Layout::scalar) accept_one_element(i);
    }
  }

  /// --set NAME=NUMBER
  void set(const std::string& text) {
    const auto [name, value] = key_value(text, "--set");
    const auto slot = p_.slot(name);
    if (!slot || slots_[static_cast<std::size_t>(*slot)].role != Slot::Role::operand)
      throw Error(ErrorKind::type, fmt::format("--set {}: program {} has no operand of that name; it takes {}", name,
                                               p_.name, operand_names()));
    const auto i = static_cast<std::size_t>(*slot);
    if (slots_[i].shape->layout != Layout::scalar)
      throw Error(ErrorKind::shape,
                  fmt::format("--set {}: '{}' is {}{}, and only scalars can be set; put it in the --in "
                              "file",
                              name, name, coda::name_of(slots_[i].dtype), shape_text(slots_[i])));
    tensors_[i] = HostTensor(slots_[i].dtype, std::initializer_list<std::int64_t>{});
    views_[i] = tensors_[i].view();
    if (slots_[i].dtype == DType::i64) {
      *tensors_[i].as<std::int64_t>() = integer(value, "--set " + name);
    } else if (slots_[i].dtype == DType::i32) {
      const std::int64_t n = integer(value, "--set " + name);
      if (n != static_cast<std::int32_t>(n))
        throw Error(ErrorKind::value, fmt::format("--set {}: {} doesn't fit in 32 bits", name, n));
      *tensors_[i].as<std::int32_t>() = static_cast<std::int32_t>(n);
    } else {
      store(tensors_[i], 0, real(name, value));
    }
  }

  void require_all(const std::string& file) const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& s = slots_[i];
      if (s.role == Slot::Role::output || views_[i].data != nullptr || views_[i].rank != 0) continue;
      const bool scalar = s.shape && s.shape->layout == Layout::scalar;
      throw Error(ErrorKind::shape, fmt::format("{} has no tensor '{}', {}{} of program {}{}", file, s.name,
                                                coda::name_of(s.dtype), shape_text(s), p_.name,
                                                scalar ? fmt::format("; add it or give --set {}=VALUE", s.name) : ""));
    }
  }

  void refuse_nan() const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Tensor& t = views_[i];
      if (t.data == nullptr || is_integer(t.dtype)) continue;
      for (std::int64_t e = 0; e < t.numel(); ++e)
        if (std::isnan(load(t, e)))
          throw Error(ErrorKind::value,
                      fmt::format("'{}' has a NaN, at {}; results that depend on it would be NaN too. "
                                  "Give --allow-nan to run all the same",
                                  slots_[i].name, place(t, e)));
    }
  }

  /// Memory for every output, now that M and N are known. An accumulating output that the file lacks starts from 0.
  void allocate_outputs(const Extents& extents) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].role != Slot::Role::output || views_[i].data != nullptr || views_[i].rank != 0) continue;
      std::vector<std::int64_t> shape;
      for (const Extent& e : slots_[i].shape->extents) shape.push_back(size_of(e, extents));
      tensors_[i] = HostTensor(slots_[i].dtype, shape);
      views_[i] = tensors_[i].view();
    }
  }

  const std::vector<Tensor>& views() const { return views_; }

  std::vector<NamedTensor> outputs() const {
    std::vector<NamedTensor> outputs;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].role == Slot::Role::output) outputs.push_back({std::string(slots_[i].name), views_[i]});
    return outputs;
  }

 private:
  bool is_fresh_output(const Slot& s) const {
    return s.role == Slot::Role::output && !p_.outputs[static_cast<std::size_t>(s.index)].accumulate;
  }

  /// Frameworks often save a scalar with shape [1].
  void accept_one_element(std::size_t i) {
    if (views_[i].numel() == 1) views_[i].rank = 0;
  }

  static std::int64_t size_of(const Extent& e, const Extents& extents) {
    switch (e.kind) {
      case Extent::Kind::m: return extents.m;
      case Extent::Kind::n: return extents.n;
      case Extent::Kind::half_n: return extents.n / 2;
      case Extent::Kind::twice_n: return 2 * extents.n;
      default: return e.number;
    }
  }

  static double real(const std::string& name, const std::string& value) {
    double x = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
    if (error != std::errc() || end != value.data() + value.size())
      throw UsageError(fmt::format("--set {} takes a number; found '{}'", name, value));
    return x;
  }

  static std::string place(const Tensor& t, std::int64_t e) {
    if (t.rank == 2) return fmt::format("[{}, {}]", e / t.shape[1], e % t.shape[1]);
    return fmt::format("[{}]", e);
  }

  std::string operand_names() const {
    std::vector<std::string_view> names;
    for (const Slot& s : slots_)
      if (s.role == Slot::Role::operand) names.push_back(s.name);
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  }

  const Program& p_;
  std::vector<Slot> slots_;
  std::vector<Tensor> views_;
  std::vector<HostTensor> tensors_;
};

/// Least, greatest and RMS of a result.
struct Summary {
  double least = NAN, greatest = NAN, rms = 0;
};
Summary summarise(const Tensor& t) {
  Summary s;
  const std::int64_t count = t.numel();
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = load(t, i);
    s.least = std::fmin(s.least, x);
    s.greatest = std::fmax(s.greatest, x);
    s.rms += x * x;
  }
  s.rms = std::sqrt(s.rms / static_cast<double>(std::max<std::int64_t>(count, 1)));
  return s;
}

/// check_arguments, with the way out that this command has.
Extents check(const Program& p, Slots slots) {
  try {
    return check_arguments(p, slots);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::dtype) throw;
    throw Error(e.kind(), fmt::format("{}. --dtype f32 or f16 changes A, B and every bf16 argument at once", e.what()));
  }
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(fmt::format("{}", x)); }

int run_program(const Options& o) {
  const Device device = device_named(o.device);
  const Program p = o.load();
  Arguments arguments(p);
  const SafetensorsFile file(o.in);
  arguments.read(file);
  for (const std::string& text : o.set) arguments.set(text);
  arguments.require_all(o.in);
  const Extents extents = check(p, arguments.views());
  if (!o.allow_nan) arguments.refuse_nan();
  arguments.allocate_outputs(extents);
  execute(p, arguments.views(), device, o.threads);
  const std::vector<NamedTensor> outputs = arguments.outputs();
  write_safetensors(o.out, outputs, {{"program", p.name}});

  Json json{{"program", p.name},         {"M", extents.m}, {"N", extents.n}, {"K", extents.k},
            {"device", name_of(device)}, {"out", o.out}};
  Table table({"output", "type", "least", "greatest", "rms"});
  for (const NamedTensor& output : outputs) {
    const Summary s = summarise(output.tensor);
    table.row({output.name, describe(output.tensor), fmt::format("{:.4g}", s.least), fmt::format("{:.4g}", s.greatest),
               fmt::format("{:.4g}", s.rms)});
    json["outputs"][output.name] = {{"type", describe(output.tensor)},
                                    {"least", number(s.least)},
                                    {"greatest", number(s.greatest)},
                                    {"rms", number(s.rms)}};
  }
  if (o.json) {
    write_json(json);
  } else {
    write(fmt::format("{} on M={}, N={}, K={}, written to {}\n\n{}", p.name, extents.m, extents.n, extents.k, o.out,
                      table.text({1})));
  }
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("run", "Run a program on your tensors");
  auto o = std::make_shared<Options>();
  o->add_to(*sub);
  sub->add_option("--in", o->in, "A safetensors file with A, B and the operands, by name")->required();
  sub->add_option("--out", o->out, "The safetensors file to write the outputs to, by name")->required();
  sub->add_option("--set", o->set, "A scalar operand's value, as in --set eps=1e-6 (repeat for more)")
      ->allow_extra_args(false);
  sub->add_option("--device", o->device, "cpu, cuda or cuda:N")->capture_default_str();
  sub->add_option("--threads", o->threads, "Threads of the CPU engine; 0: all processors")->check(CLI::Range(0, 4096));
  sub->add_flag("--allow-nan", o->allow_nan, "Run even if an input holds a NaN");
  sub->add_flag("--json", o->json, "Machine-readable");
  sub->footer(
      "An output that accumulates (`+=`) starts from the tensor of its name in the --in file, or from 0.\n"
      "Examples:\n"
      "  coda run norm_swiglu --in x.safetensors --out y.safetensors\n"
      "  coda run residual_norm --dtype f32 --in x.safetensors --set eps=1e-6 --out y.safetensors");
  sub->callback([&action, o] { action = [o] { return run_program(*o); }; });
}

}  // namespace coda::cli
