// The program around kernels: what `main.cpp` asks of whoever runs threads.
#pragma once
#include "device.h"
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace shim {
struct Entry {
  void (*run)(const void* argument);
  unsigned argument_bytes;
};
// A launch of a kernel, which follows the one before it on its stream.
struct Launch {
  Entry kernel;
  Place grid;
  unsigned threads;
  const void* argument;
};
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t word = state += 0x9e3779b97f4a7c15ull;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ word >> 27) * 0x94d049bb133111ebull;
    return word ^ word >> 31;
  }
  unsigned below(unsigned bound) { return (unsigned)((next() >> 32) * bound >> 32); }
};
// Runs streams side by side until all their launches have ended, and says `ok`; or `stuck` after it has set
// the abort word and everything has ended; or what forbids going on.
std::string run(std::vector<std::deque<Launch>>& streams, uint64_t seed, uint32_t* abort_word);
}  // namespace shim
