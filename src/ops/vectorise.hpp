// How plain loops get the processor's vectors: a function marked CODA_VECTORISE is compiled for several instruction
// sets and the one that fits is chosen when the library is loaded. Levels, not processors' names: a name (skylake-avx512)
// fits that processor alone, and its successors would get the slowest code.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define CODA_VECTORISE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CODA_VECTORISE
#endif
