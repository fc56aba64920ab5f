// What a kernel's page calls when it is compiled for the emulated device (README.md): threads, barriers, copies, products.
// Shared-memory addresses are 32 bits: the block's rank in its cluster above bit 23, as on the device, and an offset.
#pragma once
#include <cstdint>

namespace emulated {

using u32 = std::uint32_t;
struct Dim3 { unsigned x; };
struct TensorMap;
enum class Operand { bf16, f16, tf32, e4m3, e5m2 };

/// Of the thread that runs now.
extern Dim3 thread_index, block_index, grid_size;

/// Ends the launch, which then fails with this message.
[[noreturn]] void fault(const char* message);
/// Lets other threads run.
void give_way();

u32 shared_base();
u32 cluster_rank();
/// `bytes` of this block's shared memory, which must all be its own; `writes` is remembered until fence_async().
unsigned char* shared(u32 address, u32 bytes, bool writes);
/// What this thread wrote becomes visible to copies.
void fence_async();

void block_sync();
void cluster_sync();
void warp_sync();
void barrier_sync(u32 id, u32 threads);
void barrier_arrive(u32 id, u32 threads);
/// The value that lane `lane` of this warp gave; all 32 lanes call it.
u32 from_lane(u32 value, u32 lane);
/// A bit for each lane of this warp.
u32 ballot(bool value);

void mbar_init(u32 bar, u32 count);
void mbar_expect(u32 bar, u32 bytes);
void mbar_arrive(u32 bar);
void mbar_arrive_at(u32 bar, u32 rank);
void mbar_wait(u32 bar, u32 parity);

/// To every block of the cluster whose bit is set in `blocks`; 0: this one alone.
void tma_load(const TensorMap*, u32 bar, u32 to, int x, int y, u32 blocks);
void tma_store(const TensorMap*, u32 from, int x, int y, bool add);
void bulk_commit();
/// Until at most `left` committed groups of this thread have still to be read.
void bulk_wait(u32 left);

/// This thread's share of a warpgroup's product of 64 x n: done when wgmma_wait says so, and no sooner.
void wgmma(float* d, u32 a, u32 b, bool keep, int n, bool a_mn, bool b_mn, Operand a_type, Operand b_type);
void wgmma_commit();
void wgmma_wait(u32 left);

}  // namespace emulated
