// What each op costs: one function for each kind of op (records.h), which moves the role's cursor and the
// machine's pipes. It returns whether the role goes on; false: it waits, and is woken later.
// ops_memory.cpp has global loads, stores and atomics, ops_shared.cpp what touches shared memory of this SM
// or
// others; and here is what several of them need.
#pragma once
#include "role.h"

namespace gpusim {

// Wavefronts of an access; the fewest possible where bank conflicts are idealized.
double wavefronts_of(const AccessRecord& access);
// When what a role asks of global memory at `at_cycle` is past what was asked of shared memory before it.
double passes_at(const Role* role, double at_cycle);
// Waits until all of the queued stores but the last `num_left_bytes` have left the SM; true where they have.
bool until_stored(Role* role, Fifo<QueuedStore>& queued, double num_left_bytes);
}  // namespace gpusim
