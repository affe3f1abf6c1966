// What the host calls: memory for a packed launch, its run in slices, its results, and functions to be
// tested.
#include "input.h"
#include "machine.h"
#include "numeric.h"
#include "order_statistics.h"
#include "results.h"

#ifdef __wasm__
#define EXPORT(name) extern "C" __attribute__((export_name(#name)))
#else
#define EXPORT(name) extern "C" __attribute__((visibility("default")))
#endif

namespace {

int wrong_section = -2;

}  // namespace

// Memory for an input buffer.
EXPORT(allocate) void* allocate(uint32_t num_bytes) { return gpusim::memory_allocate(num_bytes); }

// Reads the buffer and starts the launch's first CTAs; 0 if all is well, else a Failure.
EXPORT(create) int32_t create(const uint8_t* buffer, uint32_t num_bytes) {
  wrong_section = gpusim::input.read(buffer, num_bytes);
  if (wrong_section != -2) return int32_t(gpusim::Failure::BAD_BUFFER);
  gpusim::build_machine();
  return 0;
}

// Carries out up to `max_events` events; 0: there is more to do, 1: finished, 2: failed.
EXPORT(run_slice) int32_t run_slice(uint32_t max_events) {
  return int32_t(gpusim::machine.run.run_slice(max_events));
}

// 0: CTAs that have exited; 1: the present cycle; 2: events so far; 3: the failure; 4: the wrong section.
EXPORT(progress) double progress(int32_t which) {
  switch (which) {
    case 0: return gpusim::machine.run.num_exits;
    case 1: return gpusim::agenda.cycle;
    case 2: return double(gpusim::agenda.num_events());
    case 3: return gpusim::machine.failure.record.kind;
    default: return wrong_section;
  }
}

// Writes the result buffer: of a run that goes on, what it has done so far.
EXPORT(results) uint8_t* results() {
  gpusim::machine.run.sum_up();
  return gpusim::write_results();
}

// The engine's own functions of floats.
EXPORT(numeric) double numeric(int32_t which, double x, double y) {
  switch (which) {
    case 0: return gpusim::exp(x);
    case 1: return gpusim::log(x);
    case 2: return gpusim::power(x, y);
    case 3: return gpusim::erf(x);
    case 4: return gpusim::hypot(x, y);
    case 5: return gpusim::normal_inverse_cdf(x);
    default: return gpusim::normal_cdf(x);
  }
}

// What the slowest of several takes that draw their waits alike.
EXPORT(evaluate) double evaluate(int32_t which, double a, double b, double c, double d, double e) {
  switch (which) {
    case 0: return gpusim::most_of(int(a));
    case 1: return gpusim::slowest_wait(int(a), int(b));
    case 2: return gpusim::slowest_of_both(int(a), int(b), c, d);
    default: return gpusim::slowest_beside_writes(a, b, c, d, e);
  }
}
