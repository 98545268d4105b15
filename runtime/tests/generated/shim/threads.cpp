// Threads as threads of the system, for ThreadSanitizer. Kernels are compiled with it; this file is not, so
// that what it does orders nothing but where it says so, as on a GPU: a block's barrier and `__syncwarp`
// order memory, `__any_sync` and lines of 128 bytes do not.
#include "program.h"
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sanitizer/tsan_interface.h>
#include <sched.h>
#include <thread>

namespace shim {
thread_local Place thread_index, block_index, grid_size;

namespace {
// A lock that ThreadSanitizer does not see.
struct Lock {
  std::atomic_flag is_held = ATOMIC_FLAG_INIT;
  void take() {
    while (is_held.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void give() { is_held.clear(std::memory_order_release); }
};
// A step that threads take together; whoever ends need not be waited for.
struct Gate {
  Lock lock;
  unsigned alive = 0, arrived = 0;
  bool any = false, answer = false;
  std::atomic<unsigned> generation{0};
  char tags[2];

  void open() {
    arrived = 0;
    answer = any;
    any = false;
    generation.fetch_add(1, std::memory_order_release);
  }
  // `last` is called by whoever comes last.
  template <class Arrive, class Last>
  bool pass(bool says, bool orders, Arrive arrive, Last last) {
    lock.take();
    const unsigned mine = generation.load(std::memory_order_relaxed);
    char* const tag = tags + (mine & 1);
    if (orders) __tsan_release(tag);
    any |= says;
    arrive();
    if (++arrived == alive) {
      last();
      open();
      lock.give();
    } else {
      lock.give();
      while (generation.load(std::memory_order_acquire) == mine) sched_yield();
    }
    if (orders) __tsan_acquire(tag);
    // Stands until all have taken the next step, which needs this thread.
    return answer;
  }
  void leave() {
    lock.take();
    --alive;
    if (alive > 0 && arrived == alive) open();
    lock.give();
  }
};
struct Line {
  Gate gate;
  bool is_apart = false, was_whole = false;
  unsigned char* at[8];
  unsigned long long *low[8], *high[8];
};
struct Block {
  Gate barrier;
  std::unique_ptr<Gate[]> warps;
  std::unique_ptr<Line[]> lines;
  std::unique_ptr<unsigned char[]> shared;
};
const unsigned SHARED_BYTES = 8192;

thread_local Block* block;
thread_local bool is_apart;
thread_local unsigned shared_used;
thread_local Random random_;
thread_local unsigned long in_vain, seen;
std::atomic<unsigned long> written{0};
std::atomic<bool> is_stuck{false};
uint32_t* abort_word_;
// Lines and their parts arrive as one.
Lock memory_lock;

void move_part(unsigned char* at, unsigned long long* low, unsigned long long* high, bool stores) {
  unsigned long long part[2] = {*low, *high};
  if (stores) {
    memcpy(at, part, 16);
  } else {
    memcpy(part, at, 16);
    *low = part[0];
    *high = part[1];
  }
}
void nothing() {}

void body(Launch launch, Block* own, Place at, unsigned index, uint64_t seed) {
  block = own;
  thread_index = {index, 0};
  block_index = at;
  grid_size = launch.grid;
  random_.state = seed;
  is_apart = false;
  shared_used = 0;
  in_vain = seen = 0;
  launch.kernel.run(launch.argument);
  own->barrier.leave();
  own->warps[index / 32].leave();
  own->lines[index / 8].gate.leave();
}

void run_launch(const Launch& launch, Random& random) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::thread> threads;
  for (unsigned y = 0; y < launch.grid.y; ++y)
    for (unsigned x = 0; x < launch.grid.x; ++x) {
      blocks.push_back(std::make_unique<Block>());
      Block* const own = blocks.back().get();
      own->barrier.alive = launch.threads;
      own->warps.reset(new Gate[(launch.threads + 31) / 32]);
      own->lines.reset(new Line[(launch.threads + 7) / 8]);
      own->shared.reset(new unsigned char[SHARED_BYTES]);
      memset(own->shared.get(), 0xcd, SHARED_BYTES);
      for (unsigned index = 0; index < launch.threads; ++index) {
        ++own->warps[index / 32].alive;
        ++own->lines[index / 8].gate.alive;
      }
      for (unsigned index = 0; index < launch.threads; ++index)
        threads.emplace_back(body, launch, own, Place{x, y}, index, random.next());
    }
  for (std::thread& thread : threads) thread.join();
}
}  // namespace

void turn() {
  if ((random_.next() & 31) == 0) sched_yield();
}
void spin() {
  // A look in vain, if nothing was written since the last one.
  const unsigned long now = written.load(std::memory_order_relaxed);
  in_vain = now == seen ? in_vain + 1 : 0;
  seen = now;
  if (in_vain > 2000000) {
    is_stuck.store(true, std::memory_order_relaxed);
    __atomic_store_n(abort_word_, 1u, __ATOMIC_RELAXED);
  }
  sched_yield();
}
void progress() { written.fetch_add(1, std::memory_order_relaxed); }
bool coin() { return random_.next() >> 63; }
void apart() { is_apart = true; }

void block_barrier() { block->barrier.pass(false, true, nothing, nothing); }

bool warp_step(bool says, bool orders) {
  const bool answer = block->warps[thread_index.x / 32].pass(says, orders, nothing, nothing);
  is_apart = false;
  if (!orders && answer) spin();
  return answer;
}

void line_access(unsigned char* at, unsigned long long* low, unsigned long long* high, bool stores) {
  Line* const line = &block->lines[thread_index.x / 8];
  const unsigned part = thread_index.x % 8;
  const auto arrive = [&] {
    line->is_apart |= is_apart;
    line->at[part] = at;
    line->low[part] = low;
    line->high[part] = high;
  };
  const auto last = [&] {
    line->was_whole = line->gate.alive == 8 && !line->is_apart;
    line->is_apart = false;
    if (!line->was_whole) return;
    memory_lock.take();
    for (int i = 0; i < 8; ++i) move_part(line->at[i], line->low[i], line->high[i], stores);
    memory_lock.give();
  };
  line->gate.pass(false, false, arrive, last);
  if (line->was_whole) return;
  turn();
  memory_lock.take();
  move_part(at, low, high, stores);
  memory_lock.give();
}

void* shared(unsigned bytes) {
  const unsigned start = shared_used;
  shared_used += (bytes + 15) & ~15u;
  if (shared_used > SHARED_BYTES) abort();
  return block->shared.get() + start;
}

std::string run(std::vector<std::deque<Launch>>& streams, uint64_t seed, uint32_t* abort_word) {
  abort_word_ = abort_word;
  is_stuck.store(false);
  std::vector<std::thread> hosts;
  for (auto& stream : streams)
    hosts.emplace_back([&stream, seed, which = hosts.size()] {
      Random random{seed + which};
      for (const Launch& launch : stream) run_launch(launch, random);
    });
  for (std::thread& host : hosts) host.join();
  return is_stuck.load() ? "stuck" : "ok";
}
}  // namespace shim
