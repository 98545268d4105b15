// Threads as fibers of one thread of the system. Who is next is drawn from a seed, so a run can be repeated;
// memory is in order, and interleaving is what is tried.
//
// An order that is uniformly random seldom lets one block fall far behind; so, in turn, a block is
// preferred for a while, or passed over.
#include "program.h"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace shim {
Place thread_index, block_index, grid_size;

namespace {
struct Block;
struct Warp;
// Eight threads of a warp.
struct Line {
  unsigned arrived = 0, alive = 0;
  bool is_apart = false, stores = false;
};
struct Thread {
  void* stack = nullptr;
  void* at = nullptr;
#ifndef __x86_64__
  ucontext_t context;
#endif
  Block* block = nullptr;
  Warp* warp = nullptr;
  Line* line = nullptr;
  unsigned index = 0;
  unsigned shared_used = 0;
  unsigned runnable_at = 0;  // its place among the block's runnable threads
  bool is_runnable = false, is_apart = false, has_ended = false;
  bool at_barrier = false, at_step = false, at_line = false, alone = false;
  unsigned char* line_at = nullptr;
  unsigned long long *low = nullptr, *high = nullptr;
};
struct Warp {
  unsigned arrived = 0, alive = 0;
  bool any = false, answer = false, orders = false;
  std::vector<Thread*> threads;
};
struct Block {
  Launch launch;
  Place index;
  unsigned stream = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Thread*> runnable;
  std::vector<Warp> warps;
  std::vector<Line> lines;
  unsigned arrived = 0, alive = 0;
  unsigned char shared[8192];
};

const size_t STACK_BYTES = 128 << 10;
std::vector<void*> stacks;
std::vector<std::unique_ptr<Block>> blocks;
std::vector<Block*> ready;  // blocks with a runnable thread
Thread* now = nullptr;
Random random_;
unsigned eagerness;  // of 256: how likely a turn is taken
uint64_t idle;       // looks in vain since something was written
const char* wrong;   // what forbids going on

#ifdef __x86_64__
void* scheduler;
extern "C" void shim_switch(void** from, void* to);
asm(R"(
.text
.globl shim_switch
shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void leave() { shim_switch(&now->at, scheduler); }
void enter(Thread* thread) { shim_switch(&scheduler, thread->at); }
#else
ucontext_t scheduler;
void leave() { swapcontext(&now->context, &scheduler); }
void enter(Thread* thread) { swapcontext(&scheduler, &thread->context); }
#endif

void make_runnable(Thread* thread) {
  if (thread->is_runnable) return;
  Block* const block = thread->block;
  thread->is_runnable = true;
  thread->runnable_at = (unsigned)block->runnable.size();
  block->runnable.push_back(thread);
  if (block->runnable.size() == 1) ready.push_back(block);
}
void suspend(Thread* thread) {
  Block* const block = thread->block;
  Thread* const last = block->runnable.back();
  block->runnable[thread->runnable_at] = last;
  last->runnable_at = thread->runnable_at;
  block->runnable.pop_back();
  thread->is_runnable = false;
  if (block->runnable.empty())
    for (size_t i = 0; i < ready.size(); ++i)
      if (ready[i] == block) {
        ready[i] = ready.back();
        ready.pop_back();
        break;
      }
}

// Each lets the waiting go when all who live are there.
void check_block(Block* block) {
  if (block->alive == 0 || block->arrived < block->alive) return;
  block->arrived = 0;
  idle = 0;
  for (auto& thread : block->threads)
    if (thread->at_barrier) thread->at_barrier = false, make_runnable(thread.get());
}
void check_warp(Warp* warp) {
  if (warp->alive == 0 || warp->arrived < warp->alive) return;
  warp->arrived = 0;
  warp->answer = warp->any;
  warp->any = false;
  for (Thread* thread : warp->threads)
    if (thread->at_step) thread->at_step = thread->is_apart = false, make_runnable(thread);
}
void move_part(Thread* thread, bool stores) {
  unsigned long long part[2] = {*thread->low, *thread->high};
  if (stores) {
    memcpy(thread->line_at, part, 16);
  } else {
    memcpy(part, thread->line_at, 16);
    *thread->low = part[0];
    *thread->high = part[1];
  }
}
void check_line(Line* line, Warp* warp) {
  if (line->alive == 0 || line->arrived < line->alive) return;
  line->arrived = 0;
  const bool whole = line->alive == 8 && !line->is_apart;
  line->is_apart = false;
  for (Thread* thread : warp->threads)
    if (thread->line == line && thread->at_line) {
      if (whole) move_part(thread, line->stores);
      thread->alone = !whole;
      thread->at_line = false;
      make_runnable(thread);
    }
}

void body() {
  now->block->launch.kernel.run(now->block->launch.argument);
  now->has_ended = true;
  suspend(now);
  leave();
  abort();
}

void* new_stack() {
  if (!stacks.empty()) {
    void* const stack = stacks.back();
    stacks.pop_back();
    return stack;
  }
  void* const stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) abort();
  return stack;
}

void start(const Launch& launch, unsigned stream) {
  for (unsigned y = 0; y < launch.grid.y; ++y)
    for (unsigned x = 0; x < launch.grid.x; ++x) {
      blocks.push_back(std::make_unique<Block>());
      Block* const block = blocks.back().get();
      block->launch = launch;
      block->index = {x, y};
      block->stream = stream;
      block->alive = launch.threads;
      memset(block->shared, 0xcd, sizeof block->shared);
      block->warps.resize((launch.threads + 31) / 32);
      block->lines.resize((launch.threads + 7) / 8);
      for (unsigned index = 0; index < launch.threads; ++index) {
        block->threads.push_back(std::make_unique<Thread>());
        Thread* const thread = block->threads.back().get();
        thread->block = block;
        thread->index = index;
        thread->warp = &block->warps[index / 32];
        thread->line = &block->lines[index / 8];
        ++thread->warp->alive;
        ++thread->line->alive;
        thread->warp->threads.push_back(thread);
        thread->stack = new_stack();
#ifdef __x86_64__
        // What `shim_switch` takes: six registers, and where to return; the stack is then as at a call.
        void** const top = (void**)((char*)thread->stack + STACK_BYTES) - 2;
        top[0] = (void*)body;
        top[1] = nullptr;
        thread->at = top - 6;
#else
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack;
        thread->context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&thread->context, body, 0);
#endif
        make_runnable(thread);
      }
    }
}

void end(Thread* thread) {
  stacks.push_back(thread->stack);
  Block* const block = thread->block;
  --thread->line->alive;
  --thread->warp->alive;
  --block->alive;
  idle = 0;
  check_line(thread->line, thread->warp);
  check_warp(thread->warp);
  check_block(block);
}

struct Policy {
  enum { UNIFORM, PREFER, PASS_OVER } kind = UNIFORM;
  uint64_t turns_left = 0;
  Block* block = nullptr;

  void renew() {
    const unsigned draw = random_.below(4);
    kind = draw == 0 ? UNIFORM : draw < 3 ? PREFER : PASS_OVER;
    block = ready[random_.below((unsigned)ready.size())];
    turns_left = 1 + random_.below(1u << (6 + random_.below(8)));
    static const unsigned likely[] = {4, 32, 256};
    eagerness = likely[random_.below(3)];
  }
  Thread* choose() {
    if (turns_left-- == 0) renew();
    Block* from = ready[random_.below((unsigned)ready.size())];
    if (kind == PREFER && !block->runnable.empty() && random_.below(32) != 0) from = block;
    if (kind == PASS_OVER && from == block) from = ready[random_.below((unsigned)ready.size())];
    if (kind == PASS_OVER && from == block && ready.size() > 1) from = ready[ready[0] == block];
    return from->runnable[random_.below((unsigned)from->runnable.size())];
  }
  void forget(const Block* gone) {
    if (block == gone) turns_left = 0, block = nullptr, kind = UNIFORM;
  }
};
}  // namespace

void turn() {
  if ((random_.next() & 255) < eagerness) leave();
}
void spin() {
  ++idle;
  leave();
}
void progress() { idle = 0; }
bool coin() { return random_.next() >> 63; }
void apart() { now->is_apart = true; }

void block_barrier() {
  now->at_barrier = true;
  ++now->block->arrived;
  suspend(now);
  check_block(now->block);
  leave();
}

bool warp_step(bool says, bool orders) {
  Warp* const warp = now->warp;
  if (warp->arrived > 0 && warp->orders != orders) wrong = "a warp's threads take different steps";
  warp->orders = orders;
  warp->any |= says;
  now->at_step = true;
  ++warp->arrived;
  suspend(now);
  check_warp(warp);
  // The answer stands until all have taken the next step, which needs this thread.
  leave();
  if (!orders && warp->answer) spin();
  return warp->answer;
}

void line_access(unsigned char* at, unsigned long long* low, unsigned long long* high, bool stores) {
  Line* const line = now->line;
  if (line->arrived > 0 && line->stores != stores) wrong = "a line's threads make different accesses";
  line->stores = stores;
  line->is_apart |= now->is_apart;
  now->line_at = at;
  now->low = low;
  now->high = high;
  now->at_line = true;
  ++line->arrived;
  suspend(now);
  check_line(line, now->warp);
  leave();
  if (now->alone) {
    turn();
    move_part(now, stores);
    turn();
  }
}

void* shared(unsigned bytes) {
  const unsigned start = now->shared_used;
  now->shared_used += (bytes + 15) & ~15u;
  if (now->shared_used > sizeof now->block->shared) abort();
  return now->block->shared + start;
}

std::string run(std::vector<std::deque<Launch>>& streams, uint64_t seed, uint32_t* abort_word) {
  random_.state = seed;
  idle = 0;
  wrong = nullptr;
  blocks.clear();
  ready.clear();
  std::vector<unsigned> alive(streams.size());
  const auto next = [&](unsigned stream) {
    if (streams[stream].empty()) return;
    const Launch launch = streams[stream].front();
    streams[stream].pop_front();
    alive[stream] = launch.grid.x * launch.grid.y;
    start(launch, stream);
  };
  for (unsigned stream = 0; stream < streams.size(); ++stream) next(stream);
  const uint64_t patience = 4 << 20;
  bool is_stuck = false;
  Policy policy;
  while (!ready.empty()) {
    if (idle > patience) {
      if (is_stuck) return "dead: waits do not end though the abort word is set";
      is_stuck = true;
      idle = 0;
      __atomic_store_n(abort_word, 1u, __ATOMIC_RELAXED);
    }
    now = policy.choose();
    thread_index = {now->index, 0};
    block_index = now->block->index;
    grid_size = now->block->launch.grid;
    enter(now);
    if (wrong) return std::string("dead: ") + wrong;
    if (!now->has_ended) continue;
    Block* const block = now->block;
    end(now);
    if (block->alive > 0) continue;
    const unsigned stream = block->stream;
    policy.forget(block);
    for (auto& other : blocks)
      if (other.get() == block) {
        std::swap(other, blocks.back());
        blocks.pop_back();
        break;
      }
    if (--alive[stream] == 0) next(stream);
  }
  if (!blocks.empty()) return "dead: threads wait for each other at a barrier";
  return is_stuck ? "stuck" : "ok";
}
}  // namespace shim
