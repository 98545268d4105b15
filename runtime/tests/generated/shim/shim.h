// What `machine.cuh` says in PTX, said in C++: included by generated text where no CUDA compiler reads it.
// A volatile access is a relaxed atomic one; acquire and release are themselves.
//
// | access | what the GPU promises | here |
// | --- | --- | --- |
// | LL line | each half, data and flag, arrives as one | two atomic accesses of 8 bytes in any order |
// | LL128 line | 128 bytes arrive as one, if the warp was together | `shim::line_access` |
// | 16 bytes of a slot | nothing without the counter | two atomic accesses of 8 bytes |

DEVICE u32 load_epoch(const u32* word) {
  shim::turn();
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}
DEVICE u32 flag_after(u32 epoch) { return (epoch + 1) | 0x80000000u; }
DEVICE u64 load_acquire(const u64* word) {
  // Who looks again has not found what it waits for.
  shim::spin();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
DEVICE void store_release(u64* word, u64 value) {
  shim::turn();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  shim::progress();
}
DEVICE u32 load_host(const u32* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
DEVICE void store_host(u64* word, u64 value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }
DEVICE Vector load_peer(const u8* at) {
  shim::turn();
  const u64* const words = (const u64*)at;
  return {__atomic_load_n(words, __ATOMIC_RELAXED), __atomic_load_n(words + 1, __ATOMIC_RELAXED)};
}
DEVICE void store_line_ll(u8* line, u64 data, u32 flag) {
  u64* const words = (u64*)line;
  const u64 half[2] = {(u32)data | (u64)flag << 32, data >> 32 | (u64)flag << 32};
  const int first = shim::coin();
  shim::turn();
  __atomic_store_n(words + first, half[first], __ATOMIC_RELAXED);
  shim::turn();
  __atomic_store_n(words + 1 - first, half[1 - first], __ATOMIC_RELAXED);
  shim::progress();
}
DEVICE bool load_line_ll(const u8* line, u32 flag, u64& data) {
  const u64* const words = (const u64*)line;
  const int first = shim::coin();
  u64 half[2];
  shim::turn();
  half[first] = __atomic_load_n(words + first, __ATOMIC_RELAXED);
  shim::turn();
  half[1 - first] = __atomic_load_n(words + 1 - first, __ATOMIC_RELAXED);
  data = (u32)half[0] | half[1] << 32;
  const bool is_here = half[0] >> 32 == flag && half[1] >> 32 == flag;
  if (!is_here) shim::spin();
  return is_here;
}
DEVICE void store_line_ll128(u8* at, u64 low, u64 high) {
  shim::line_access(at, &low, &high, true);
  shim::progress();
}
DEVICE Vector load_line_ll128(const u8* at) {
  Vector v;
  shim::line_access((u8*)at, &v.low, &v.high, false);
  return v;
}

// Conversions as `cvt` makes them: to nearest, ties to even; a NaN is the largest magnitude.
DEVICE float half_to_float(u16 bits) {
  const u32 sign = (u32)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // 2^-24 is the smallest subnormal.
  if (magnitude < 0x400u) return __uint_as_float(sign | __float_as_uint((float)magnitude * 0x1p-24f));
  return __uint_as_float(sign | ((magnitude << 13) + (112u << 23)));
}
DEVICE u16 float_to_half(float value) {
  const u32 all = __float_as_uint(value), sign = all >> 16 & 0x8000u, magnitude = all & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return (u16)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Adding 2^-1 leaves a unit of 2^-24, to which the sum is rounded.
    const u32 sum = __float_as_uint(__uint_as_float(magnitude) + 0.5f);
    return (u16)(sign | (sum - 0x3f000000u));
  }
  return (u16)(sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}
DEVICE u16 float_to_bfloat16(float value) {
  const u32 all = __float_as_uint(value);
  if ((all & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (u16)((all + 0x7fffu + (all >> 16 & 1u)) >> 16);
}
