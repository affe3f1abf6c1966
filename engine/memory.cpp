// Memory of the engine.
// Models: nothing of the GPU. Blocks of powers of two, each size with a list of free ones.
// Ignores: giving pages back; a run's memory ends with its instance.
#include "containers.h"

#ifndef __wasm__
#include <stdlib.h>
#endif

extern "C" [[noreturn]] void __cxa_pure_virtual() { __builtin_trap(); }

namespace gpusim {

#ifdef __wasm__

namespace {

constexpr size_t PAGE_BYTES = 65536;
constexpr int NUM_SIZES = 32;

struct FreeBlock {
  FreeBlock* next;
};

FreeBlock* free_blocks[NUM_SIZES];
uintptr_t next_byte = 0;
uintptr_t end_byte = 0;

int size_class(size_t num_bytes) { return num_bytes <= 16 ? 4 : 32 - __builtin_clz(uint32_t(num_bytes - 1)); }

void* fresh(size_t num_bytes) {
  if (next_byte + num_bytes > end_byte) {
    size_t wanted = num_bytes > 16 * PAGE_BYTES ? num_bytes : 16 * PAGE_BYTES;
    size_t num_pages = (wanted + PAGE_BYTES - 1) / PAGE_BYTES;
    size_t before = __builtin_wasm_memory_grow(0, num_pages);
    if (before == size_t(-1)) __builtin_trap();
    uintptr_t begin = before * PAGE_BYTES;
    if (begin != end_byte) next_byte = begin;
    end_byte = begin + num_pages * PAGE_BYTES;
  }
  void* found = reinterpret_cast<void*>(next_byte);
  next_byte += num_bytes;
  return found;
}

}  // namespace

void* memory_allocate(size_t num_bytes) {
  int bits = size_class(num_bytes);
  if (bits >= 20)  // large ones as they are, so that a buffer does not take twice its size
    return fresh((num_bytes + 15) & ~size_t(15));
  FreeBlock* block = free_blocks[bits];
  if (block != nullptr) {
    free_blocks[bits] = block->next;
    return block;
  }
  return fresh(size_t(1) << bits);
}

void memory_release(void* memory, size_t num_bytes) {
  int bits = size_class(num_bytes);
  if (memory == nullptr || bits >= 20) return;
  FreeBlock* block = static_cast<FreeBlock*>(memory);
  block->next = free_blocks[bits];
  free_blocks[bits] = block;
}

#else

void* memory_allocate(size_t num_bytes) {
  void* found = malloc(num_bytes ? num_bytes : 1);
  if (found == nullptr) abort();
  return found;
}

void memory_release(void* memory, size_t) { free(memory); }

#endif

}  // namespace gpusim
