// Where an SM's instructions come from, and how long straight-line code waits for them.
#include "instruction_cache.h"

#include "machine.h"

namespace gpusim {

namespace {

constexpr double INSTRUCTION_BYTES = 16.0;  // of every instruction since Volta
constexpr double LOOP_WAYS = 4.0;           // lines of a loop that lie at one place; kernels/loop_code

// What a level of the cache has lost of code of so many bytes.
double missing_share(double num_bytes, double capacity_bytes) {
  return smaller(1.0, larger(0.0, 2.0 * (num_bytes - capacity_bytes) / num_bytes));
}

}  // namespace

double InstructionCache::wait_cycles(int32_t name, double num_bytes, int32_t num_warps_each) {
  const InstructionCacheConstants& spec = *input.instruction_cache;
  double from_l1 = 0.0;
  double from_below = 1.0;
  double below_cycles = input.launch->code_latency_cycles;
  for (uint32_t place = 0; place < ran_.size(); place++) {
    if (ran_[place].name != name) continue;
    double since = 0.0;
    for (uint32_t other = ran_.size(); other-- > place;) since += ran_[other].num_bytes;
    below_cycles = input.l2->near_latency_cycles;
    from_below = missing_share(since, spec.l1_bytes);
    from_l1 = larger(0.0, missing_share(since, spec.l0_bytes) - from_below);
    ran_.erase(place);
    break;
  }
  ran_.push(Stretch{name, num_bytes});
  double issued = num_warps_each / INSTRUCTION_BYTES;
  double waits = from_l1 * larger(0.0, spec.l1_latency_cycles / spec.prefetched_bytes - issued);
  waits += from_below * larger(0.0, below_cycles / spec.prefetched_bytes - issued);
  return num_bytes * waits;
}

double InstructionCache::loop_cycles(double num_instructions, double overhead_cycles) const {
  double num_bytes = num_instructions * INSTRUCTION_BYTES;
  double kept = input.instruction_cache->loop_kept_bytes;
  if (num_bytes <= kept) return 0.0;
  double lost = smaller(1.0, (1.0 + LOOP_WAYS) * (num_bytes - kept) / num_bytes);
  return lost * larger(0.0, num_bytes / loop_bytes_per_cycle_ - overhead_cycles);
}

double InstructionCache::late_cycles(const ColdCodeRecord& code, double at_cycle) {
  const InstructionCacheConstants& spec = *input.instruction_cache;
  double far = code.end_bytes - larger(code.begin_bytes, spec.launch_fetched_bytes);
  if (far <= 0.0) return 0.0;
  int32_t name = int32_t(code.name);
  while (there_at_.size() <= uint32_t(name)) there_at_.push(-1.0);
  double& there_at = there_at_[uint32_t(name)];
  if (there_at < 0.0) {
    double since = fetched_code.at(uint32_t(name), at_cycle);
    double turns = far / spec.prefetched_bytes;
    there_at = larger(at_cycle + turns * input.l2->near_latency_cycles,
                      since + turns * input.launch->code_latency_cycles);
  }
  double own = code.overhead_cycles * far / (code.end_bytes - code.begin_bytes);
  return larger(0.0, there_at - at_cycle - own);
}

}  // namespace gpusim
