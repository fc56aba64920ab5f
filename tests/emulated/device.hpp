// The emulated device's state: threads as coroutines, their blocks and clusters, barriers, and copies under way.
#pragma once
#include <ucontext.h>

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine.hpp"

namespace emulated {

/// Counts arrivals; complete when as many have come as were announced.
struct Barrier {
  u32 arrived = 0, generation = 0;
  /// True for the one that completes it.
  bool arrive(u32 count);
};

struct MBarrier {
  u32 count = 0, pending = 0, phase = 0;
  std::int64_t bytes = 0;
  void settle();
};

/// What a thread waits for: a word to differ from a value, or an mbarrier's phase to have this parity no longer.
struct Wait {
  const u32* word = nullptr;
  u32 value = 0;
  bool parity = false;
  bool over() const { return !word || (parity ? (*word & 1) != value : *word != value); }
};

struct Block;
struct Product;

struct Thread {
  ucontext_t context;
  Block* block = nullptr;
  u32 index = 0;
  Wait wait;
  bool done = false;
  u32 exchanges = 0;
  std::vector<u32> unfenced;                    // 16-byte units of shared memory written since the last fence
  std::vector<std::size_t> uncommitted;         // copies of the group that is being made
  std::deque<std::vector<std::size_t>> groups;  // committed copies whose source may not have been read
  std::vector<Product> products;
  std::deque<std::vector<Product>> product_groups;
};

struct Product {
  float* d;
  u32 a, b;
  bool keep, a_mn, b_mn;
  int n;
  Operand a_type, b_type;
};

struct Warp {
  Barrier barrier;
  u32 lanes[2][32];
};

struct Block {
  u32 index = 0, rank = 0;
  std::vector<Block*>* cluster = nullptr;
  Barrier* cluster_barrier = nullptr;
  std::vector<unsigned char> memory;
  std::vector<std::uint16_t> dirty;  // of each 16 bytes: the thread that wrote them and has not fenced, plus 1
  std::vector<MBarrier> mbarriers;   // of each 8 bytes
  Barrier barriers[16], all;
  std::vector<Warp> warps;
  std::deque<Thread> threads;
};

/// A copy under way. It happens some time after it was asked for: at once, late, or anywhere between.
struct Copy {
  std::function<void()> happen;
  bool done = false;
};

struct Launch {
  void (*entry)(void**) = nullptr;
  u32 grid = 1, threads = 1, shared_bytes = 0, cluster = 1;
  bool one_block_at_a_time = false;  // pages with static __shared__ variables
};

/// Runs a kernel to its end. Empty, or what it did wrong.
std::string run(const Launch&, void** arguments);

Block& block();
Thread& thread();
unsigned char* memory_of(Block&, u32 address, u32 bytes);
MBarrier& mbarrier(Block&, u32 address);
/// Puts a copy under way and returns its number.
std::size_t start(std::function<void()> copy);
void finish(std::size_t copy);
void wait_for(Wait);

constexpr u32 shared_start = 1024;

}  // namespace emulated
