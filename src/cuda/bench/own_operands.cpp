// Operands of any program, and its unfused sequence: the product, stored, and one pass over it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "coda/error.hpp"
#include "coda/inputs.hpp"
#include "coda/text.hpp"
#include "cuda/bench/operands.hpp"

namespace coda::cuda {
namespace {

/// `acc` is a word of the language's own, so every one of them in a program's text, comments apart, is the product.
std::string with_acc_replaced(const std::string& text, const std::string& replacement) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string out;
  bool comment = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    comment = text[i] == '#' || (comment && text[i] != '\n');
    const bool word = !comment && text.compare(i, 3, "acc") == 0 && (i == 0 || !in_name(text[i - 1])) && (i + 3 == text.size() || !in_name(text[i + 3]));
    out += word ? replacement : std::string(1, text[i]);
    if (word) i += 2;
  }
  return out;
}

/// Stores its product as it is, and nothing else; or has no use for it.
bool is_the_product(const Program& p) {
  if (std::none_of(p.nodes.begin(), p.nodes.end(), [](const Node& n) { return n.op == Op::acc; })) return true;
  return p.outputs.size() == 1 && p.node(p.outputs[0].value).op == Op::acc && !p.outputs[0].accumulate && !p.outputs[0].shape.transposed;
}

}  // namespace

Program pass_over_product(const Program& p) {
  std::string text = print(p), name = "product";
  while (text.find(name) != std::string::npos) name += "_";
  text = with_acc_replaced(text, fmt::format("(acc + {})", name));
  const std::size_t gemm = text.find("\n  gemm ") + 1, after = text.find('\n', gemm) + 1;
  text.insert(after, fmt::format("  in {}: {}[M, N]\n", name, name_of(p.a_dtype)));
  return parse(text, {}, p.name + " over its product");
}

OwnOperands::OwnOperands(const BenchCase& what, const Program& program, const Passes& passes, int device_index, const OwnOperands* like)
    : Operands(what, program, passes, device_index) {
  ContextScope scope(device_);
  const Inputs inputs = like ? Inputs{} : make_inputs(program, {.extents = {what.m, what.n, what.k}, .symbols = what.symbols, .seed = 1});
  const std::vector<Tensor>& source = like ? like->slots_ : inputs.slots;
  const auto declared = program.slots();
  const bool unfused_exists = !is_the_product(program);
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i].role == Slot::Role::operand && source[i].rank == 0) {  // read from the host at each launch
      HostTensor& scalar = host_.emplace_back(declared[i].dtype, std::span<const std::int64_t>{});
      store(scalar, 0, load(source[i], 0));
      slots_.push_back(scalar);
      continue;
    }
    const Tensor& t = add_slot(source[i]);
    const std::size_t bytes = static_cast<std::size_t>(t.numel()) * size_of(t.dtype);
    const auto to = reinterpret_cast<DevicePointer>(t.data);
    if (bytes > 0 && like) CODA_CUDA(cuMemcpyAsync, to, reinterpret_cast<DevicePointer>(source[i].data), bytes, nullptr);
    else if (bytes > 0) CODA_CUDA(cuMemcpyHtoDAsync, to, source[i].data, bytes, nullptr);
    if (declared[i].role == Slot::Role::output && unfused_exists) add_unfused(declared[i], t);
  }
  product_ = DeviceBuffer(device_, static_cast<std::size_t>(what.m * what.n) * size_of(program.a_dtype));
  CODA_CUDA(cuCtxSynchronize);
  if (!unfused_exists) return;

  const Program pass = pass_over_product(program);
  const std::int64_t stored[] = {what.m, what.n};
  for (const Slot& s : pass.slots()) {
    if (s.role == Slot::Role::a || s.role == Slot::Role::b) {
      const std::int64_t empty[] = {s.role == Slot::Role::a ? what.m : what.n, 0};
      pass_slots_.push_back(Tensor::contiguous(nullptr, s.dtype, empty, {DeviceType::cuda, device_}));
    } else if (const auto slot = program.slot(s.name)) {
      pass_slots_.push_back(slots_[static_cast<std::size_t>(*slot)]);
      if (s.role == Slot::Role::output) pass_slots_.back().data = unfused(s.name);
    } else {
      pass_slots_.push_back(Tensor::contiguous(product_.data(), s.dtype, stored, {DeviceType::cuda, device_}));
    }
  }
  if (like) {
    pass_ = like->pass_;
  } else {
    const auto kernel = std::make_shared<const Kernel>(pass);
    try {
      kernel->prepare(pass_slots_);
      pass_ = kernel;
    } catch (const Error& e) {
      // One operand more than the program has may be one too many for a block's memory: then there is no sequence to time.
      if (e.kind() != ErrorKind::unsupported) throw;
    }
  }
}

void OwnOperands::enqueue_unfused(const CublasLt& plain, const CublasLt*, Stream stream) const {
  plain.enqueue(a(), b(), product_.data(), stream);
  pass_->launch(pass_slots_, stream);
}

}  // namespace coda::cuda
