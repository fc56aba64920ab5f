#include "device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace emulated {

Dim3 thread_index, block_index, grid_size;

namespace {

constexpr std::size_t stack_bytes = 256 << 10;

struct Failure {};  // of a copy that no thread was waiting for

// How copies and warps are timed. Launches take turns, so that a program run twice meets two of them.
enum class Timing { eager, late, random };

struct Device {
  std::deque<Block> blocks;
  std::deque<std::vector<Block*>> clusters;
  std::deque<Barrier> cluster_barriers;
  std::deque<Copy> copies;
  std::vector<std::size_t> under_way;
  Thread* current = nullptr;
  ucontext_t scheduler;
  std::string message;
  bool failed = false, scheduling = true;
  Launch launch;
  void** arguments = nullptr;
  std::mt19937 random;
  Timing timing = Timing::eager;
};
Device* device;  // of the launch that runs; one at a time

// Stacks are kept from launch to launch: the kernel clears what it maps.
std::vector<void*>& stacks() {
  static std::vector<void*> all;
  return all;
}

void begin() {
  device->launch.entry(device->arguments);
  Thread& t = thread();
  for (const auto& group : t.groups)
    for (const std::size_t copy : group)
      if (!device->copies[copy].done) fault("a thread ended while its stores were still to be read");
  t.done = true;
}

void make_coroutine(Thread& t, void* stack) {
  getcontext(&t.context);
  t.context.uc_stack.ss_sp = stack;
  t.context.uc_stack.ss_size = stack_bytes;
  t.context.uc_link = &device->scheduler;
  makecontext(&t.context, begin, 0);
}

void prepare(u32 first, u32 count) {
  Device& d = *device;
  d.blocks.clear();
  d.clusters.clear();
  d.cluster_barriers.clear();
  std::size_t stack = 0;
  for (u32 b = first; b < first + count; ++b) {
    if ((b - first) % d.launch.cluster == 0) {
      d.clusters.emplace_back();
      d.cluster_barriers.emplace_back();
    }
    Block& one = d.blocks.emplace_back();
    one.index = b;
    one.rank = b % d.launch.cluster;
    d.clusters.back().push_back(&one);
    one.cluster = &d.clusters.back();
    one.cluster_barrier = &d.cluster_barriers.back();
    one.memory.assign(d.launch.shared_bytes, 0xff);
    one.dirty.assign(d.launch.shared_bytes / 16 + 1, 0);
    one.mbarriers.resize(d.launch.shared_bytes / 8 + 1);
    one.warps.resize((d.launch.threads + 31) / 32);
    for (u32 i = 0; i < d.launch.threads; ++i) {
      Thread& t = one.threads.emplace_back();
      t.block = &one;
      t.index = i;
      if (stack == stacks().size()) {
        void* at = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) fault("no memory for stacks");
        stacks().push_back(at);
      }
      make_coroutine(t, stacks()[stack++]);
    }
  }
}

void resume(Thread& t) {
  device->current = &t;
  thread_index.x = t.index;
  block_index.x = t.block->index;
  device->scheduling = false;
  swapcontext(&device->scheduler, &t.context);
  device->scheduling = true;
}

void copy_some(bool stuck) {
  Device& d = *device;
  if (d.under_way.empty()) return;
  if (d.timing == Timing::late && !stuck) return;
  std::vector<std::size_t> left;
  // Stuck: one copy must happen, and any may be the first.
  if (stuck) std::swap(d.under_way.front(), d.under_way[d.random() % d.under_way.size()]);
  for (std::size_t i = 0; i < d.under_way.size(); ++i) {
    const std::size_t copy = d.under_way[i];
    const bool now = stuck ? i == 0 : d.timing == Timing::eager || d.random() % 4 == 0;
    if (now) finish(copy);
    else if (!d.copies[copy].done) left.push_back(copy);
    if (d.failed) return;
  }
  d.under_way.swap(left);
}

std::string who_waits() {
  std::string s = "every thread waits:";
  int named = 0;
  for (Block& b : device->blocks)
    for (Thread& t : b.threads)
      if (!t.done && t.index % 32 == 0 && named++ < 12) s += " block " + std::to_string(b.index) + " warp " + std::to_string(t.index / 32) + (t.wait.parity ? " (mbarrier);" : " (barrier);");
  return s;
}

// Runs the prepared blocks to their end.
void run_blocks() {
  Device& d = *device;
  std::vector<std::pair<Block*, u32>> warps;
  for (Block& b : d.blocks)
    for (u32 w = 0; w < b.warps.size(); ++w) warps.emplace_back(&b, w);
  for (;;) {
    bool any = false, alive = false;
    const bool random = d.timing == Timing::random, rests = random && d.random() % 2 == 0;
    if (random) std::shuffle(warps.begin(), warps.end(), d.random);
    for (auto& [b, w] : warps) {
      if (rests && d.random() % 4 == 0) {
        alive = alive || std::any_of(b->threads.begin() + 32 * w, b->threads.begin() + std::min<std::ptrdiff_t>(32 * w + 32, std::ssize(b->threads)), [](const Thread& t) { return !t.done; });
        continue;
      }
      for (u32 i = 32 * w; i < std::min<std::size_t>(32 * w + 32, b->threads.size()); ++i) {
        Thread& t = b->threads[d.timing == Timing::late ? 32 * w + 31 - i % 32 : i];
        if (t.done) continue;
        alive = true;
        if (!t.wait.over()) continue;
        t.wait = {};
        any = true;
        resume(t);
        if (d.failed) return;
      }
    }
    if (!alive) return;
    const bool stuck = !any && !rests;
    if (stuck && d.under_way.empty()) {
      d.message = who_waits();
      d.failed = true;
      return;
    }
    copy_some(stuck);
    if (d.failed) return;
  }
}

}  // namespace

Thread& thread() { return *device->current; }
Block& block() { return *thread().block; }

void fault(const char* message) {
  Device& d = *device;
  d.failed = true;
  d.message = std::string(message) + " (block " + std::to_string(block_index.x) + ", thread " + std::to_string(thread_index.x) + ")";
  if (d.scheduling) throw Failure();
  swapcontext(&d.current->context, &d.scheduler);  // and never back
  std::abort();
}

void give_way() { swapcontext(&thread().context, &device->scheduler); }

void wait_for(Wait w) {
  Thread& t = thread();
  if (w.over()) return;
  t.wait = w;
  give_way();
}

std::string run(const Launch& launch, void** arguments) {
  static unsigned launches = 0;
  Device d;
  d.launch = launch;
  d.arguments = arguments;
  const char* seed = std::getenv("CODA_EMULATED_SEED");
  d.random.seed(++launches + (seed ? static_cast<unsigned>(std::atoi(seed)) * 7919u : 0));
  d.timing = static_cast<Timing>(launches % 3);
  device = &d;
  grid_size.x = launch.grid;
  if (launch.threads == 0 || launch.threads > 1024 || launch.cluster == 0 || launch.grid % launch.cluster != 0) return "a grid that can't be launched";
  const u32 at_once = launch.one_block_at_a_time ? 1 : launch.grid;
  for (u32 b = 0; b < launch.grid && !d.failed; b += at_once) {
    try {
      prepare(b, at_once);
      run_blocks();
    } catch (const Failure&) {  // d.message says what
    }
  }
  for (std::size_t i = 0; i < d.copies.size() && !d.failed; ++i)
    if (!d.copies[i].done) d.message = "a copy was never waited for", d.failed = true;
  device = nullptr;
  return d.message;
}

// ---------------------------------------------------------------- shared memory

u32 shared_base() { return block().rank << 24 | shared_start; }
u32 cluster_rank() { return block().rank; }

unsigned char* memory_of(Block& b, u32 address, u32 bytes) {
  const u32 at = address - shared_start;
  if (address < shared_start || at > b.memory.size() || bytes > b.memory.size() - at) fault("shared memory: an address outside the block's");
  return b.memory.data() + at;
}

unsigned char* shared(u32 address, u32 bytes, bool writes) {
  Block& b = block();
  if (address >> 24 != b.rank) fault("shared memory: another block's address");
  if (address % bytes != 0) fault("shared memory: a misaligned address");
  unsigned char* at = memory_of(b, address & 0xffffff, bytes);
  if (writes) {
    const auto unit = static_cast<u32>(at - b.memory.data()) / 16;
    b.dirty[unit] = static_cast<std::uint16_t>(thread().index + 1);
    thread().unfenced.push_back(unit);
  }
  return at;
}

void fence_async() {
  Thread& t = thread();
  for (const u32 unit : t.unfenced)
    if (t.block->dirty[unit] == t.index + 1) t.block->dirty[unit] = 0;
  t.unfenced.clear();
}

// ---------------------------------------------------------------- barriers

bool Barrier::arrive(u32 count) {
  if (++arrived < count) return false;
  if (arrived > count) fault("a barrier: more arrivals than threads");
  arrived = 0;
  ++generation;
  return true;
}

namespace {
void sync(Barrier& b, u32 count) {
  const u32 generation = b.generation;
  if (!b.arrive(count)) wait_for({&b.generation, generation, false});
}
}  // namespace

void block_sync() { sync(block().all, device->launch.threads); }
void cluster_sync() { sync(*block().cluster_barrier, device->launch.threads * device->launch.cluster); }
void warp_sync() { sync(block().warps[thread().index / 32].barrier, 32); }
void barrier_sync(u32 id, u32 threads) {
  if (id >= 16) fault("a named barrier above 15");
  sync(block().barriers[id], threads);
}
void barrier_arrive(u32 id, u32 threads) {
  if (id >= 16) fault("a named barrier above 15");
  block().barriers[id].arrive(threads);
}

u32 from_lane(u32 value, u32 lane) {
  Thread& t = thread();
  Warp& w = t.block->warps[t.index / 32];
  u32* lanes = w.lanes[t.exchanges++ % 2];  // a lane is at most one exchange ahead
  lanes[t.index % 32] = value;
  warp_sync();
  return lanes[lane % 32];
}

u32 ballot(bool value) {
  Thread& t = thread();
  Warp& w = t.block->warps[t.index / 32];
  u32* lanes = w.lanes[t.exchanges++ % 2];
  lanes[t.index % 32] = value;
  warp_sync();
  u32 bits = 0;
  for (u32 i = 0; i < 32; ++i) bits |= lanes[i] << i;
  return bits;
}

// ---------------------------------------------------------------- mbarriers

void MBarrier::settle() {
  if (pending != 0 || bytes != 0) return;
  pending = count;
  ++phase;
}

MBarrier& mbarrier(Block& b, u32 address) {
  memory_of(b, address, 8);
  if (address % 8 != 0) fault("an mbarrier at a misaligned address");
  return b.mbarriers[(address - shared_start) / 8];
}

namespace {
MBarrier& live(Block& b, u32 address) {
  MBarrier& m = mbarrier(b, address & 0xffffff);
  if (m.count == 0) fault("an mbarrier that was not initialised");
  return m;
}
void arrive(MBarrier& m) {
  if (m.pending == 0) fault("an mbarrier: more arrivals than its count");
  --m.pending;
  m.settle();
}
}  // namespace

void mbar_init(u32 bar, u32 count) { mbarrier(block(), bar & 0xffffff) = {count, count, 0, 0}; }
void mbar_expect(u32 bar, u32 bytes) {
  MBarrier& m = live(block(), bar);
  m.bytes += bytes;
  arrive(m);
}
void mbar_arrive(u32 bar) { arrive(live(block(), bar)); }
void mbar_arrive_at(u32 bar, u32 rank) {
  Block& b = block();
  if (rank >= b.cluster->size()) fault("an mbarrier of a block outside the cluster");
  arrive(live(*(*b.cluster)[rank], bar));
}
void mbar_wait(u32 bar, u32 parity) { wait_for({&live(block(), bar).phase, parity & 1, true}); }

// ---------------------------------------------------------------- copies under way

std::size_t start(std::function<void()> copy) {
  Device& d = *device;
  d.copies.push_back({std::move(copy)});
  d.under_way.push_back(d.copies.size() - 1);
  return d.copies.size() - 1;
}

void finish(std::size_t copy) {
  Copy& c = device->copies[copy];
  if (c.done) return;
  c.done = true;
  c.happen();
  c.happen = nullptr;
}

}  // namespace emulated
