// Runs generated kernels as it is told, a line at a time:
//   launch STREAM KERNEL GRID_X GRID_Y THREADS ARGUMENT_ADDRESS ARGUMENT_BYTES
//   go SEED ABORT_WORD_ADDRESS
// and answers each `go` by a line. Memory is the file that is its argument, mapped at a fixed address, so
// that who writes arguments into the file knows what is where.
#include "program.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>

namespace shim {
static std::map<int, Entry>& kernels() {
  static std::map<int, Entry> all;
  return all;
}
Kernel::Kernel(int index, void (*run)(const void*), unsigned argument_bytes) {
  kernels()[index] = {run, argument_bytes};
}
}  // namespace shim

static void refuse(const char* why) {
  printf("refused: %s\n", why);
  fflush(stdout);
  exit(1);
}

int main(int count, char** arguments) {
  const uintptr_t memory = 0x1000000000;  // What the tests call MEMORY.
  const int file = count == 2 ? open(arguments[1], O_RDWR) : -1;
  struct stat about;
  if (file < 0 || fstat(file, &about) != 0) refuse("no file for memory");
  void* const mapped = mmap((void*)memory, (size_t)about.st_size, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
  if (mapped != (void*)memory) refuse("memory cannot be mapped at its address");
  std::vector<std::deque<shim::Launch>> streams;
  char line[256];
  while (fgets(line, sizeof line, stdin)) {
    unsigned stream, kernel, bytes;
    unsigned long long address, seed;
    shim::Launch launch;
    if (sscanf(line, "launch %u %u %u %u %u %llu %u", &stream, &kernel, &launch.grid.x, &launch.grid.y,
               &launch.threads, &address, &bytes) == 7) {
      const auto found = shim::kernels().find((int)kernel);
      if (found == shim::kernels().end()) refuse("no such kernel");
      if (found->second.argument_bytes != bytes) refuse("the argument is not the kernel's");
      launch.kernel = found->second;
      launch.argument = (const void*)address;
      if (streams.size() <= stream) streams.resize(stream + 1);
      streams[stream].push_back(launch);
    } else if (sscanf(line, "go %llu %llu", &seed, &address) == 2) {
      const std::string answer = shim::run(streams, seed, (uint32_t*)address);
      streams.clear();
      puts(answer.c_str());
      fflush(stdout);
    } else {
      refuse("a line that says nothing");
    }
  }
}
