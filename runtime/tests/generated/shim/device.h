// What CUDA C++ has and C++ has not, for generated kernels that run on a CPU: included in front of a kernel.
// Whatever threads do to each other goes through these functions; `fibers.cpp` and `threads.cpp` each say
// how.
#pragma once

#define __device__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

#ifdef SHIM_THREADS
#define SHIM_LOCAL thread_local
#else
#define SHIM_LOCAL
#endif

namespace shim {
struct Place {
  unsigned x, y;
};
extern SHIM_LOCAL Place thread_index, block_index, grid_size;

// A place at which another thread may have its turn.
void turn();
// Nothing was found: others have their turn.
void spin();
// Something was written that others may wait for.
void progress();
// Heads or tails.
bool coin();

// A barrier of a block's threads that have not ended.
void block_barrier();
// A step that a warp's threads take together; `orders` says whether memory is ordered by it. Returns
// whether any of them said so.
bool warp_step(bool says, bool orders);
// A thread's 16 bytes of a line of 128, which its eight threads move as one, unless they have been apart
// since the warp's last common step.
void line_access(unsigned char* at, unsigned long long* low, unsigned long long* high, bool stores);
// The calling thread may have left the others of its warp.
void apart();
// The block's next array.
void* shared(unsigned bytes);

struct Kernel {
  Kernel(int index, void (*run)(const void* argument), unsigned argument_bytes);
};
}  // namespace shim

#define threadIdx shim::thread_index
#define blockIdx shim::block_index
#define gridDim shim::grid_size
#define SHARED(type, name, count) type* const name = (type*)shim::shared(sizeof(type) * (count))

static inline void __syncthreads() { shim::block_barrier(); }
static inline void __syncwarp() { shim::warp_step(false, true); }
// Orders no memory.
static inline bool __any_sync(unsigned, bool says) { return shim::warp_step(says, false); }

template <class To, class From>
static inline To shim_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __uint_as_float(unsigned bits) { return shim_bits<float>(bits); }
static inline unsigned __float_as_uint(float value) { return shim_bits<unsigned>(value); }
static inline double __longlong_as_double(long long bits) { return shim_bits<double>(bits); }
static inline long long __double_as_longlong(double value) { return shim_bits<long long>(value); }
