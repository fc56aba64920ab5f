/* A fused product from plain C: x = A·Bᵀ + residual, its weighted copy h, and the row statistic rstd, on the CPU.
 *
 *   cc -std=c99 run.c -lcoda -o run && ./run
 *
 * The same calls run on a GPU: give tensors in device memory (device.type CODA_CUDA) and a stream to coda_run. */
#include <coda/coda.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS 4
#define COLUMNS 8
#define DEPTH 3

static void ok(coda_status status) {
  if (status != CODA_OK) {
    fprintf(stderr, "error %d: %s\n", (int)status, coda_last_error());
    exit(1);
  }
}

static coda_tensor matrix(float* data, int64_t* shape, int32_t rank) {
  coda_tensor t = {0};
  t.data = data;
  t.device.type = CODA_CPU;
  t.ndim = rank;
  t.dtype.code = CODA_FLOAT;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

int main(void) {
  static const char text[] =
      "program residual_norm_f32\n"
      "  gemm A: f32[M, K], B: f32[N, K]\n"
      "  in residual: f32[M, N]\n"
      "  in w: f32[N]\n"
      "  x = acc + residual\n"
      "  out x: f32[M, N] = x\n"
      "  out h: f32[M, N] = x * w\n"
      "  finish rstd: f32[M] = rsqrt(sum(x * x, over n) / N + 1e-6)\n";
  coda_program* program = NULL;
  ok(coda_program_parse(text, NULL, 0, &program));

  int32_t slots = coda_program_slot_count(program), i;
  for (i = 0; i < slots; i++) {
    coda_slot s;
    ok(coda_program_slot(program, i, &s));
    printf("slot %d: %-9s %s\n", (int)i, s.name, s.shape);
  }

  static float a[ROWS * DEPTH], b[COLUMNS * DEPTH], residual[ROWS * COLUMNS], w[COLUMNS], x[ROWS * COLUMNS], h[ROWS * COLUMNS], rstd[ROWS];
  for (i = 0; i < ROWS * DEPTH; i++) a[i] = (float)i;
  for (i = 0; i < COLUMNS * DEPTH; i++) b[i] = 1.0f;
  for (i = 0; i < COLUMNS; i++) w[i] = 0.5f;

  int64_t of_a[] = {ROWS, DEPTH}, of_b[] = {COLUMNS, DEPTH}, of_x[] = {ROWS, COLUMNS}, of_w[] = {COLUMNS}, of_rows[] = {ROWS};
  coda_tensor views[] = {matrix(a, of_a, 2),  matrix(b, of_b, 2), matrix(residual, of_x, 2), matrix(w, of_w, 1),
                         matrix(x, of_x, 2), matrix(h, of_x, 2), matrix(rstd, of_rows, 1)};
  const coda_tensor* arguments[sizeof views / sizeof views[0]];
  for (i = 0; i < slots; i++) arguments[i] = &views[i];
  ok(coda_run(program, arguments, slots, NULL));

  for (i = 0; i < ROWS; i++) printf("row %d: x = %g, h = %g, rstd = %.4f\n", (int)i, x[i * COLUMNS], h[i * COLUMNS], rstd[i]);
  coda_program_free(program);
  return 0;
}
