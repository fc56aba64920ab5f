/* CODA's C interface: programs, and runs on CPU or CUDA tensors, behind plain C99.
 *
 * Every function that can fail returns a status; coda_last_error() then says, for the calling thread, what was wrong,
 * where, and what to do. Objects are made by *_create, *_parse or *_load and freed by *_free (NULL is allowed). Programs
 * are immutable and kernels lock for themselves: both may be used from many threads at once. No C++ exception leaves. */
#ifndef CODA_CODA_H
#define CODA_CODA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

typedef enum coda_status {
  CODA_OK = 0,
  CODA_ERROR_SYNTAX = 1,      /* program text that doesn't parse */
  CODA_ERROR_TYPE = 2,        /* types, extents or names of a program don't fit */
  CODA_ERROR_LOCALITY = 3,    /* a value that isn't tile-local is used in its own epilogue */
  CODA_ERROR_SHAPE = 4,       /* a tensor's extents don't fit */
  CODA_ERROR_DTYPE = 5,       /* a tensor's element type isn't the declared one */
  CODA_ERROR_LAYOUT = 6,      /* strides or alignment that the engine can't take */
  CODA_ERROR_VALUE = 7,       /* an argument out of its range */
  CODA_ERROR_IO = 8,          /* a file that can't be read */
  CODA_ERROR_UNSUPPORTED = 9, /* this build, device or engine doesn't do it; or the CUDA driver or NVRTC is missing */
  CODA_ERROR_DEVICE = 10,     /* the CUDA driver or NVRTC reported a failure */
  CODA_ERROR_INTERNAL = 11,   /* a fault of the library */
  CODA_ERROR_MEMORY = 12      /* host memory ran out */
} coda_status;

/* The message of the calling thread's last failure; "" before the first. Valid until the thread's next failure. */
const char* coda_last_error(void);
/* "0.1.0" */
const char* coda_version(void);

/* ---- tensors ---- */

/* Laid out exactly as DLPack's DLTensor (dlpack.h, versions 0.6 to 1.1): a DLTensor* may be passed wherever a
 * coda_tensor* is asked for, after a cast. Nothing is owned or kept. */
typedef struct coda_tensor {
  void* data;
  struct {
    int32_t type; /* CODA_CPU, CODA_CUDA, or 3: host memory pinned by CUDA */
    int32_t id;   /* CUDA device index */
  } device;
  int32_t ndim;
  struct {
    uint8_t code; /* CODA_INT, CODA_FLOAT, CODA_BFLOAT, CODA_FLOAT8_E4M3FN, CODA_FLOAT8_E5M2 */
    uint8_t bits;
    uint16_t lanes; /* 1 */
  } dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; NULL: row-major without gaps */
  uint64_t byte_offset;
} coda_tensor;

enum { CODA_CPU = 1, CODA_CUDA = 2 };
enum { CODA_INT = 0, CODA_FLOAT = 2, CODA_BFLOAT = 4, CODA_FLOAT8_E4M3FN = 10, CODA_FLOAT8_E5M2 = 12 };

/* ---- programs ---- */

typedef struct coda_program coda_program;

/* A value for a `param` line. */
typedef struct coda_param {
  const char* name;
  int64_t value;
} coda_param;

/* Parses and checks a program text (docs/language.md). `params` may be NULL where param_count is 0. */
coda_status coda_program_parse(const char* text, const coda_param* params, int32_t param_count, coda_program** program);
/* The same from a file, or a standard program by its name. */
coda_status coda_program_load(const char* path_or_name, const coda_param* params, int32_t param_count, coda_program** program);
/* A program less one output and what only it needed. */
coda_status coda_program_without(const coda_program* program, const char* output, coda_program** reduced);
void coda_program_free(coda_program* program);

const char* coda_program_name(const coda_program* program);
/* The canonical text; valid as long as the program. */
const char* coda_program_text(const coda_program* program);

typedef enum coda_role { CODA_ROLE_A = 0, CODA_ROLE_B = 1, CODA_ROLE_OPERAND = 2, CODA_ROLE_OUTPUT = 3 } coda_role;

/* One argument. Arguments stand in this order: A, B, operands, outputs. */
typedef struct coda_slot {
  const char* name;
  coda_role role;
  uint8_t dtype_code, dtype_bits; /* as in coda_tensor */
  int32_t ndim;
  const char* shape;  /* as declared: "[M, N/2]" */
  int32_t accumulate; /* 1: an output that is added to */
} coda_slot;

int32_t coda_program_slot_count(const coda_program* program);
/* Strings live as long as the program. CODA_ERROR_VALUE where there is no such slot. */
coda_status coda_program_slot(const coda_program* program, int32_t index, coda_slot* slot);
/* The index of an argument by its name, or -1. */
int32_t coda_program_find_slot(const coda_program* program, const char* name);

int32_t coda_standard_program_count(void);
/* The name of a standard program, or NULL. */
const char* coda_standard_program_name(int32_t index);

/* ---- running ---- */

/* Runs a program where its tensors lie: all in host memory, at once; or all on one CUDA device (scalar operands may be in
 * host memory), enqueued on `stream`, a cudaStream_t or CUstream, NULL for the default one. `tensors` has one pointer for
 * each slot; NULL for an output leaves it out. Inputs are never written. */
coda_status coda_run(const coda_program* program, const coda_tensor* const* tensors, int32_t count, void* stream);

/* 1 where a CUDA driver and a device are present. */
int32_t coda_cuda_available(void);

typedef struct coda_kernel coda_kernel;

typedef struct coda_kernel_options {
  const char* config;       /* name of a configuration, or NULL: chosen */
  int32_t tune;             /* 1: time configurations on the first launch of new extents, and remember */
  int32_t serial_launches;  /* 1: no overlap of a launch's start with the end of the one before it */
} coda_kernel_options;

/* A program for CUDA tensors, with its compiled code and prepared launches. `options` may be NULL. */
coda_status coda_kernel_create(const coda_program* program, const coda_kernel_options* options, coda_kernel** kernel);
void coda_kernel_free(coda_kernel* kernel);
/* Checks, chooses and compiles for these arguments; nothing is launched. */
coda_status coda_kernel_prepare(const coda_kernel* kernel, const coda_tensor* const* tensors, int32_t count);
/* Bytes of workspace these arguments need; 0: none. */
coda_status coda_kernel_workspace(const coda_kernel* kernel, const coda_tensor* const* tensors, int32_t count, size_t* bytes);
/* Enqueues on `stream`. `workspace`: NULL for the library's own, else device memory, 256-byte aligned, zero before its
 * first use. May be captured in a CUDA graph. */
coda_status coda_kernel_launch(const coda_kernel* kernel, const coda_tensor* const* tensors, int32_t count, void* stream, void* workspace,
                               size_t workspace_bytes);

#ifdef __cplusplus
}
#endif
#endif
