// ---- the machine -------------------------------------------------------------------------------------------
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

// One access of 16 bytes.
struct alignas(16) Vector {
  u64 low, high;
};

#define DEVICE __device__ __forceinline__
// The common case stands in line; the rest out of the way of the instruction cache.
#define USUALLY(condition) __builtin_expect(!!(condition), 1)
#define SELDOM(condition) __builtin_expect(!!(condition), 0)

#ifdef __CUDACC_RTC__
// An array of a block's own.
#define SHARED(type, name, count) __shared__ type name[count]
DEVICE u32 load_epoch(const u32* word) {
  u32 value;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
// The next epoch's flag: 31 bits, and the top bit that cleared memory never has. Volatile, so that nothing
// waits for the epoch before the loads in front of it are on their way.
DEVICE u32 flag_after(u32 epoch) {
  u32 next;
  asm volatile("add.u32 %0, %1, 1;" : "=r"(next) : "r"(epoch));
  return next | 0x80000000u;
}
DEVICE u64 load_acquire(const u64* word) {
  u64 value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
DEVICE void store_release(u64* word, u64 value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
DEVICE u32 load_host(const u32* word) {
  u32 value;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
DEVICE void store_host(u64* word, u64 value) {
  asm volatile("st.volatile.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// What a peer has written: past the first-level cache, which does not see it.
DEVICE Vector load_peer(const u8* at) {
  Vector v;
  asm volatile("ld.volatile.global.v2.u64 { %0, %1}, [%2];" : "=l"(v.low), "=l"(v.high) : "l"(at) : "memory");
  return v;
}
DEVICE void store_line_ll(u8* line, u64 data, u32 flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], { %1, %2, %3, %2};" ::"l"(line), "r"((u32)data), "r"(flag),
               "r"((u32)(data >> 32))
               : "memory");
}
DEVICE bool load_line_ll(const u8* line, u32 flag, u64& data) {
  u32 low, high, first, second;
  asm volatile("ld.volatile.global.v4.u32 { %0, %1, %2, %3}, [%4];"
               : "=r"(low), "=r"(first), "=r"(high), "=r"(second)
               : "l"(line)
               : "memory");
  data = (u64)high << 32 | low;
  return first == flag && second == flag;
}
// A thread's 16 bytes of a line of 128. Eight threads that stay together move it as one.
DEVICE void store_line_ll128(u8* at, u64 low, u64 high) {
  asm volatile("st.volatile.global.v2.u64 [%0], { %1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
}
DEVICE Vector load_line_ll128(const u8* at) { return load_peer(at); }
DEVICE float half_to_float(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
DEVICE u16 float_to_half(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
DEVICE u16 float_to_bfloat16(float value) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
// The CPU: what stands above in C++ is put here by the tests that run this text.
#endif
