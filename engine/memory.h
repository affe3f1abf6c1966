// Memory of the engine: grown pages in WebAssembly, the C library's heap in a native build.
#pragma once
#include <stddef.h>
#include <stdint.h>

inline void* operator new(size_t, void* place) noexcept { return place; }

namespace gpusim {

// Returns memory for `num_bytes`, aligned to 16 bytes; ends the run where there is none.
void* memory_allocate(size_t num_bytes);

// Gives back what `memory_allocate(num_bytes)` returned.
void memory_release(void* memory, size_t num_bytes);

}  // namespace gpusim
