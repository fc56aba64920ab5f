// How plain loops get the processor's vectors: a function marked CODA_VECTORISE is compiled for several instruction
// sets and the one that fits is chosen when the library is loaded.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define CODA_VECTORISE __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define CODA_VECTORISE
#endif
