// Standard programs by name, and their launch on the device of their tensors: see launch.hpp.
#include "ops/launch.hpp"

#include <map>
#include <mutex>
#include <tuple>

#include "coda/kernel.hpp"

namespace coda::ops {

const Program& standard(std::string_view name, DType dtype, const ParamValues& params) {
  using Key = std::tuple<std::string, DType, ParamValues>;
  static std::mutex mutex;
  static std::map<Key, Program> programs;  // nodes of a map stay where they are
  const std::lock_guard lock(mutex);
  Key key{std::string(name), dtype, params};
  if (const auto it = programs.find(key); it != programs.end()) return it->second;
  Program program = load_program(name, params);
  if (program.a_dtype != dtype) program = program.with_dtype(dtype);
  return programs.emplace(std::move(key), std::move(program)).first->second;
}

void launch(const Context& context, std::string_view name, const ParamValues& params,
            std::initializer_list<std::pair<std::string_view, Tensor>> arguments) {
  const Tensor& a = arguments.begin()->second;
  const Program& program = standard(name, a.dtype, params);
  std::vector<Tensor> slots(program.slots().size());
  for (const auto& [argument, tensor] : arguments) {
    if (const std::optional<int> slot = program.slot(argument)) {
      slots[static_cast<std::size_t>(*slot)] = tensor;
    }
  }
  if (context.observe) context.observe(program, slots);
  run(program, slots, context.stream);
}

Tensor empty_factor(DType dtype, std::int64_t extent, Device device) {
  const std::int64_t shape[] = {extent, 0};
  return Tensor::contiguous(nullptr, dtype, shape, device);
}

Tensor rows_of(const Tensor& t, std::int64_t first, std::int64_t count) {
  Tensor part = t;
  part.shape[0] = count;
  if (t.data != nullptr) {
    part.data = static_cast<char*>(t.data) + first * t.stride[0] * static_cast<std::int64_t>(size_of(t.dtype));
  }
  return part;
}

}  // namespace coda::ops
