// Distributed shared memory: what the SMs of a cluster say to one another.
#include "dsmem.h"

#include "machine.h"

namespace gpusim {

double Dsmem::read(double num_bytes, double at_cycle, Dsmem& far, bool is_pair) {
  counters.dsmem.read_bytes += num_bytes;
  far.link.reserve(num_bytes * input.dsmem->serve_fraction, at_cycle);
  double latency = input.dsmem->latency_cycles - (is_pair ? 2.0 * input.dsmem->pair_saving_cycles : 0.0);
  return link.reserve(num_bytes, at_cycle) + latency;
}

double Dsmem::write(double num_bytes, double at_cycle, bool is_pair) {
  counters.dsmem.write_bytes += num_bytes;
  return link.reserve(num_bytes, at_cycle) + one_way_cycles(is_pair);
}

double Dsmem::one_way_cycles(bool is_pair) {
  return input.dsmem->one_way_cycles - (is_pair ? input.dsmem->pair_saving_cycles : 0.0);
}

}  // namespace gpusim
