// What the host calls: memory for a packed launch, its run in slices, its results, and functions to be
// tested.
#include "machine.h"
#include "numeric.h"
#include "order_statistics.h"

#ifdef __wasm__
#define EXPORT(name) extern "C" __attribute__((export_name(#name)))
#else
#define EXPORT(name) extern "C" __attribute__((visibility("default")))
#endif

namespace gpusim {

InputData input;

namespace {

int wrong_section = -2;  // of the input; -1: its header; -2: none

struct Header {
  uint32_t magic;
  uint32_t version;
  uint32_t num_sections;
  uint32_t zero;
  uint64_t total_bytes;
};

struct SectionEntry {
  uint64_t offset;
  uint64_t count;
};

// Finds sections by their numbers.
struct SectionReader {
  const uint8_t* buffer;
  uint32_t num_bytes;

  template <class T>
  void operator()(Input section, const T*& constants) {
    constants = find<T>(section, sizeof(double), sizeof(T) / sizeof(double));
  }

  template <class T>
  void operator()(Input section, Table<T>& records) {
    uint64_t count = entry(section).count;
    records = Table<T>{find<T>(section, sizeof(T), count), uint32_t(count)};
  }

  const SectionEntry& entry(Input section) const {
    return reinterpret_cast<const SectionEntry*>(buffer + sizeof(Header))[uint32_t(section)];
  }

  template <class T>
  const T* find(Input section, uint64_t item_bytes, uint64_t count) {
    const SectionEntry& found = entry(section);
    bool is_inside = found.offset % 8 == 0 && found.offset <= num_bytes && found.count == count &&
                     count <= (num_bytes - found.offset) / item_bytes;
    if (!is_inside && wrong_section == -2) wrong_section = int(section);
    return reinterpret_cast<const T*>(buffer + found.offset);
  }
};

// Reads the header and the table of sections.
void read_input(const uint8_t* buffer, uint32_t num_bytes) {
  const Header* header = reinterpret_cast<const Header*>(buffer);
  uint32_t table_bytes = sizeof(Header) + NUM_INPUT_SECTIONS * sizeof(SectionEntry);
  bool is_right = num_bytes >= table_bytes && header->magic == BUFFER_MAGIC &&
                  header->version == BUFFER_VERSION && header->num_sections == NUM_INPUT_SECTIONS &&
                  header->total_bytes == num_bytes;
  wrong_section = is_right ? -2 : -1;
  SectionReader reader{buffer, num_bytes};
  if (is_right) input.for_each(reader);
}

struct Block {
  const void* items;
  uint64_t count;
  uint64_t item_bytes;
};

// Sections of the result buffer.
struct Blocks {
  Block all[NUM_OUTPUT_SECTIONS];

  template <class T>
  void operator()(Output section, const Vector<T>& rows) {
    all[uint32_t(section)] = Block{rows.begin(), rows.size(), sizeof(T)};
  }

  // Of records that are of nothing but doubles.
  template <class T>
  void doubles(Output section, const T* records, uint32_t num) {
    all[uint32_t(section)] = Block{records, num * (sizeof(T) / sizeof(double)), sizeof(double)};
  }
};

uint64_t aligned(uint64_t num_bytes) { return (num_bytes + 7) & ~uint64_t(7); }

// Writes all sections into one new buffer, in the order of OUTPUT_SECTIONS.
uint8_t* write_results() {
  static uint8_t* buffer = nullptr;  // of the last call
  static uint64_t held = 0;
  Vector<SmTotals> sm_totals;
  for (Sm& sm : machine.sms) {
    const WarpScheduler& scheduler = sm.scheduler;
    sm_totals.push(SmTotals{sm.active_cycles, scheduler.fma_pipe.busy_cycles,
                            scheduler.issue_slots.busy_cycles, sm.smem.data.busy_cycles,
                            sm.l1.unit.busy_cycles, sm.tma.engine.busy_cycles});
  }
  Blocks blocks;
  blocks.doubles(Output::TOTALS, &machine.run.totals, 1);
  blocks.doubles(Output::FAILURE, &machine.failure.record, 1);
  blocks.doubles(Output::SM_TOTALS, sm_totals.begin(), sm_totals.size());
  blocks(Output::ROLE_TOTALS, machine.run.role_totals);
  blocks(Output::EPILOGUE_CYCLES, machine.run.epilogue_cycles);
  blocks.doubles(Output::COUNTERS, &counters, 1);
  machine.recorder.for_each(blocks);

  uint64_t offset = sizeof(Header) + NUM_OUTPUT_SECTIONS * sizeof(SectionEntry);
  uint64_t total = offset;
  for (const Block& block : blocks.all) total += aligned(block.count * block.item_bytes);
  if (total > held) {
    memory_release(buffer, held);
    held = held ? 2 * total : total;
    buffer = static_cast<uint8_t*>(memory_allocate(held));
  }
  *reinterpret_cast<Header*>(buffer) = Header{BUFFER_MAGIC, BUFFER_VERSION, NUM_OUTPUT_SECTIONS, 0, total};
  SectionEntry* entry = reinterpret_cast<SectionEntry*>(buffer + sizeof(Header));
  for (const Block& block : blocks.all) {
    *entry++ = SectionEntry{offset, block.count};
    if (block.count) __builtin_memcpy(buffer + offset, block.items, block.count * block.item_bytes);
    offset += aligned(block.count * block.item_bytes);
  }
  return buffer;
}

}  // namespace

}  // namespace gpusim

using namespace gpusim;

// Memory for an input buffer.
EXPORT(allocate) void* allocate(uint32_t num_bytes) { return memory_allocate(num_bytes); }

// Reads the buffer and starts the launch's first CTAs; 0 if all is well, else a Failure.
EXPORT(create) int32_t create(const uint8_t* buffer, uint32_t num_bytes) {
  read_input(buffer, num_bytes);
  if (wrong_section != -2) return int32_t(Failure::BAD_BUFFER);
  build_machine();
  return 0;
}

// Carries out up to `max_events` events; 0: there is more to do, 1: finished, 2: failed.
EXPORT(run_slice) int32_t run_slice(uint32_t max_events) {
  return int32_t(machine.run.run_slice(max_events));
}

// 0: CTAs that have exited; 1: the present cycle; 2: events so far; 3: the failure; 4: the wrong section.
EXPORT(progress) double progress(int32_t which) {
  switch (which) {
    case 0: return machine.run.totals.num_exits;
    case 1: return agenda.cycle;
    case 2: return double(agenda.num_events());
    case 3: return machine.failure.record.kind;
    default: return wrong_section;
  }
}

// Writes the result buffer: of a run that goes on, what it has done so far.
EXPORT(results) uint8_t* results() {
  machine.run.sum_up();
  return write_results();
}

// The engine's own functions of floats.
EXPORT(numeric) double numeric(int32_t which, double x, double y) {
  switch (which) {
    case 0: return gpusim::exp(x);
    case 1: return log(x);
    case 2: return power(x, y);
    case 3: return erf(x);
    case 4: return hypot(x, y);
    case 5: return normal_inverse_cdf(x);
    default: return normal_cdf(x);
  }
}

// What the slowest of several takes that draw their waits alike.
EXPORT(evaluate) double evaluate(int32_t which, double a, double b, double c, double d, double e) {
  switch (which) {
    case 0: return expected_max(int(a));
    case 1: return slowest_wait(int(a), int(b));
    case 2: return slowest_of_both(int(a), int(b), c, d);
    default: return slowest_beside_writes(a, b, c, d, e);
  }
}
