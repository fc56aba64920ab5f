// The C interface over the C++ one: statuses for exceptions, DLPack-compatible views for Tensor.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "coda/coda.h"
#include "coda/error.hpp"
#include "coda/kernel.hpp"
#include "coda/program.hpp"
#include "coda/text.hpp"

struct coda_program {
  coda::Program program;
  std::string text;
  std::vector<std::string> names, shapes;  // of its slots
};

struct coda_kernel {
  coda::Kernel kernel;
};

namespace {

using namespace coda;

thread_local std::string last_error;

static_assert(sizeof(coda_tensor) == 48 && offsetof(coda_tensor, device) == 8 && offsetof(coda_tensor, ndim) == 16 &&
              offsetof(coda_tensor, dtype) == 20 && offsetof(coda_tensor, shape) == 24 && offsetof(coda_tensor, byte_offset) == 40);
static_assert(static_cast<int>(ErrorKind::syntax) + 1 == CODA_ERROR_SYNTAX && static_cast<int>(ErrorKind::internal) + 1 == CODA_ERROR_INTERNAL);

template <class F> coda_status guarded(F&& body) noexcept {
  try {
    body();
    return CODA_OK;
  } catch (const Error& e) {
    last_error = e.what();
    return static_cast<coda_status>(static_cast<int>(e.kind()) + 1);
  } catch (const std::bad_alloc&) {
    last_error = "host memory ran out";
    return CODA_ERROR_MEMORY;
  } catch (const std::exception& e) {
    last_error = e.what();
    return CODA_ERROR_INTERNAL;
  } catch (...) {
    last_error = "an unknown exception";
    return CODA_ERROR_INTERNAL;
  }
}

void require(const void* pointer, const char* what) {
  if (!pointer) throw Error(ErrorKind::value, fmt::format("{} is NULL", what));
}

ParamValues values_of(const coda_param* params, std::int32_t count) {
  if (count < 0) throw Error(ErrorKind::value, fmt::format("param_count is {}", count));
  if (count > 0) require(params, "params");
  ParamValues values;
  for (std::int32_t i = 0; i < count; ++i) {
    require(params[i].name, "a param's name");
    values[params[i].name] = params[i].value;
  }
  return values;
}

std::string text_of(const Extent& e) {
  switch (e.kind) {
    case Extent::Kind::m: return "M";
    case Extent::Kind::n: return "N";
    case Extent::Kind::half_n: return "N/2";
    case Extent::Kind::twice_n: return "2N";
    case Extent::Kind::symbol: return e.symbol;
    case Extent::Kind::number: return std::to_string(e.number);
  }
  return "?";
}

coda_program* wrap(Program p) {
  auto w = std::make_unique<coda_program>();
  w->program = std::move(p);
  w->text = print(w->program);
  for (const Slot& s : w->program.slots()) {
    w->names.emplace_back(s.name);
    std::string shape = "[";
    if (s.shape)
      for (const Extent& e : s.shape->extents) shape += (shape.size() > 1 ? ", " : "") + text_of(e);
    else
      shape += s.role == Slot::Role::a ? "M, K" : "N, K";
    w->shapes.push_back(shape + "]");
  }
  return w.release();
}

struct Code {
  std::uint8_t code, bits;
};

Code code_of(DType t) {
  switch (t) {
    case DType::f32: return {CODA_FLOAT, 32};
    case DType::bf16: return {CODA_BFLOAT, 16};
    case DType::f16: return {CODA_FLOAT, 16};
    case DType::e4m3: return {CODA_FLOAT8_E4M3FN, 8};
    case DType::e5m2: return {CODA_FLOAT8_E5M2, 8};
    case DType::i32: return {CODA_INT, 32};
    case DType::i64: return {CODA_INT, 64};
    case DType::f64: return {CODA_FLOAT, 64};
  }
  return {};
}

DType dtype_of(const coda_tensor& t, std::string_view name) {
  for (DType d : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i32, DType::i64, DType::f64})
    if (const Code c = code_of(d); c.code == t.dtype.code && c.bits == t.dtype.bits && t.dtype.lanes == 1) return d;
  throw Error(ErrorKind::dtype, fmt::format("argument '{}' has DLPack type (code {}, {} bits, {} lanes), which no program takes", name,
                                            int{t.dtype.code}, int{t.dtype.bits}, t.dtype.lanes));
}

Tensor tensor_of(const coda_tensor* c, std::string_view name) {
  if (!c) return {};
  Tensor t;
  t.dtype = dtype_of(*c, name);
  if (c->ndim < 0 || c->ndim > Tensor::max_rank)
    throw Error(ErrorKind::shape, fmt::format("argument '{}' has {} dimensions; at most {} are taken", name, c->ndim, Tensor::max_rank));
  if (c->device.type == CODA_CUDA) t.device = {DeviceType::cuda, c->device.id};
  else if (c->device.type != CODA_CPU && c->device.type != 3)
    throw Error(ErrorKind::unsupported, fmt::format("argument '{}' lies on a device of DLPack type {}; host memory (1) and CUDA (2) are taken", name, c->device.type));
  t.data = c->data ? static_cast<char*>(c->data) + c->byte_offset : nullptr;
  t.rank = c->ndim;
  if (c->ndim > 0) require(c->shape, "a tensor's shape");
  std::int64_t stride = 1;
  for (int d = c->ndim - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    t.shape[i] = c->shape[d];
    t.stride[i] = c->strides ? c->strides[d] : stride;
    stride *= c->shape[d];
  }
  return t;
}

std::vector<Tensor> tensors_of(const Program& p, const coda_tensor* const* tensors, std::int32_t count) {
  const auto slots = p.slots();
  if (count != static_cast<std::int32_t>(slots.size()))
    throw Error(ErrorKind::shape, fmt::format("{} takes {} arguments (A, B, operands, outputs) and got {}", p.name, slots.size(), count));
  require(tensors, "tensors");
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!tensors[i] && slots[i].role != Slot::Role::output)
      throw Error(ErrorKind::value, fmt::format("argument '{}' of {} is NULL; only outputs may be left out", slots[i].name, p.name));
    out.push_back(tensor_of(tensors[i], slots[i].name));
  }
  return out;
}

}  // namespace

extern "C" {

const char* coda_last_error(void) { return last_error.c_str(); }
const char* coda_version(void) { return CODA_VERSION; }

coda_status coda_program_parse(const char* text, const coda_param* params, int32_t param_count, coda_program** program) {
  return guarded([&] {
    require(text, "text");
    require(program, "program");
    *program = wrap(parse(text, values_of(params, param_count)));
  });
}

coda_status coda_program_load(const char* path_or_name, const coda_param* params, int32_t param_count, coda_program** program) {
  return guarded([&] {
    require(path_or_name, "path_or_name");
    require(program, "program");
    *program = wrap(load_program(path_or_name, values_of(params, param_count)));
  });
}

coda_status coda_program_without(const coda_program* program, const char* output, coda_program** reduced) {
  return guarded([&] {
    require(program, "program");
    require(output, "output");
    require(reduced, "reduced");
    *reduced = wrap(program->program.without(output));
  });
}

void coda_program_free(coda_program* program) { delete program; }

const char* coda_program_name(const coda_program* program) { return program ? program->program.name.c_str() : ""; }
const char* coda_program_text(const coda_program* program) { return program ? program->text.c_str() : ""; }

int32_t coda_program_slot_count(const coda_program* program) { return program ? static_cast<int32_t>(program->names.size()) : 0; }

coda_status coda_program_slot(const coda_program* program, int32_t index, coda_slot* slot) {
  return guarded([&] {
    require(program, "program");
    require(slot, "slot");
    const auto slots = program->program.slots();
    if (index < 0 || static_cast<std::size_t>(index) >= slots.size())
      throw Error(ErrorKind::value, fmt::format("{} has slots 0 to {}, and no slot {}", program->program.name, slots.size() - 1, index));
    const auto i = static_cast<std::size_t>(index);
    const Slot& s = slots[i];
    const Code c = code_of(s.dtype);
    *slot = {program->names[i].c_str(), static_cast<coda_role>(s.role), c.code, c.bits,
             s.shape ? static_cast<int32_t>(s.shape->extents.size()) : 2, program->shapes[i].c_str(),
             s.role == Slot::Role::output && program->program.outputs[static_cast<std::size_t>(s.index)].accumulate};
  });
}

int32_t coda_program_find_slot(const coda_program* program, const char* name) {
  if (!program || !name) return -1;
  for (std::size_t i = 0; i < program->names.size(); ++i)
    if (program->names[i] == name) return static_cast<int32_t>(i);
  return -1;
}

int32_t coda_standard_program_count(void) { return static_cast<int32_t>(standard_programs().size()); }

const char* coda_standard_program_name(int32_t index) {
  static const std::vector<std::string> names = standard_programs();
  return index >= 0 && static_cast<std::size_t>(index) < names.size() ? names[static_cast<std::size_t>(index)].c_str() : nullptr;
}

coda_status coda_run(const coda_program* program, const coda_tensor* const* tensors, int32_t count, void* stream) {
  return guarded([&] {
    require(program, "program");
    run(program->program, tensors_of(program->program, tensors, count), stream);
  });
}

int32_t coda_cuda_available(void) { return cuda_available(); }

coda_status coda_kernel_create(const coda_program* program, const coda_kernel_options* options, coda_kernel** kernel) {
  return guarded([&] {
    require(program, "program");
    require(kernel, "kernel");
    KernelOptions o;
    if (options) o = {options->config ? options->config : "", options->tune != 0, options->serial_launches == 0};
    *kernel = new coda_kernel{Kernel(program->program, o)};
  });
}

void coda_kernel_free(coda_kernel* kernel) { delete kernel; }

coda_status coda_kernel_prepare(const coda_kernel* kernel, const coda_tensor* const* tensors, int32_t count) {
  return guarded([&] {
    require(kernel, "kernel");
    kernel->kernel.prepare(tensors_of(kernel->kernel.program(), tensors, count));
  });
}

coda_status coda_kernel_workspace(const coda_kernel* kernel, const coda_tensor* const* tensors, int32_t count, size_t* bytes) {
  return guarded([&] {
    require(kernel, "kernel");
    require(bytes, "bytes");
    *bytes = kernel->kernel.workspace_bytes(tensors_of(kernel->kernel.program(), tensors, count));
  });
}

coda_status coda_kernel_launch(const coda_kernel* kernel, const coda_tensor* const* tensors, int32_t count, void* stream, void* workspace,
                               size_t workspace_bytes) {
  return guarded([&] {
    require(kernel, "kernel");
    kernel->kernel.launch(tensors_of(kernel->kernel.program(), tensors, count), stream, {workspace, workspace_bytes});
  });
}

}  // extern "C"
