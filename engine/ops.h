// What each op costs: one function for each kind of op (records.h), which moves the role's cursor and the
// machine's pipes. Where a role may wait in it, it returns whether the role goes on; false: it is woken
// later. The files: ops_arithmetic.cpp (MMA too), ops_barriers.cpp, ops_cp_async.cpp, ops_memory.cpp (global
// loads, stores and atomics), ops_shared.cpp (this SM's shared memory or another's), ops_tma.cpp.
#pragma once
#include "role.h"

namespace gpusim {

// Wavefronts of an access; the fewest possible where bank conflicts are idealized.
double wavefronts_of(const AccessRecord& access);
// When what a role asks of global memory at `at_cycle` is past what was asked of shared memory before it.
double passes_at(const Role* role, double at_cycle);
// What a copy asks of the memory below L1, from `at` on; its record says what else comes with it.
template <class CopyRecord>
MemoryRequest copy_request(const Role* role, const Op& op, const CopyRecord& copy, double num_bytes,
                           double at) {
  MemoryRequest request = role->request(op, num_bytes, at);
  request.num_rows = copy.num_rows;
  request.neighbours = input.neighbours.items + 2 * copy.neighbours_begin;
  request.num_neighbours = uint32_t(copy.num_neighbours);
  if (copy.fetches >= 0) request.fetched = input.fetches[uint32_t(copy.fetches)];
  request.new_fraction = copy.new_fraction;
  return request;
}

// Waits until all of the queued stores but the last `num_left_bytes` have left the SM; true where they have.
bool until_stored(Role* role, Fifo<QueuedStore>& queued, double num_left_bytes);

}  // namespace gpusim
