// The result buffer: totals, counters, timelines, failures, in the order of OUTPUT_SECTIONS.
#include "results.h"

#include "machine.h"

namespace gpusim {

namespace {

struct Block {
  const void* items;
  uint64_t count;
  uint64_t item_bytes;
};

template <class T>
Block block_of(const Vector<T>& items) {
  return Block{items.data(), items.size(), sizeof(T)};
}

template <class T>
Block doubles_of(const T& record) {
  return Block{&record, sizeof(T) / sizeof(double), sizeof(double)};
}

uint64_t aligned(uint64_t num_bytes) { return (num_bytes + 7) & ~uint64_t(7); }

}  // namespace

uint8_t* write_results() {
  static uint8_t* buffer = nullptr;  // of the last call
  static uint64_t held = 0;
  Vector<double> sm_totals;
  for (uint32_t idx = 0; idx < machine.sms.size(); idx++) {
    const Sm& sm = sm_of(idx);
    sm_totals.push(sm.active_cycles);
    sm_totals.push(sm.scheduler.fma_pipe.busy_cycles);
    sm_totals.push(sm.scheduler.issue_slots.busy_cycles);
    sm_totals.push(sm.smem.data.busy_cycles);
    sm_totals.push(sm.l1.unit.busy_cycles);
    sm_totals.push(sm.tma.engine.busy_cycles);
  }
  const Recorder& recorder = machine.recorder;
  Block blocks[NUM_OUTPUT_SECTIONS] = {};
  blocks[uint32_t(Output::TOTALS)] = doubles_of(machine.run.totals);
  blocks[uint32_t(Output::FAILURE)] = doubles_of(machine.failure.record);
  blocks[uint32_t(Output::SM_TOTALS)] = block_of(sm_totals);
  blocks[uint32_t(Output::ROLE_TOTALS)] = block_of(machine.run.role_totals);
  blocks[uint32_t(Output::EPILOGUE_CYCLES)] = block_of(machine.run.epilogue_cycles);
  blocks[uint32_t(Output::COUNTERS)] = doubles_of(counters);
  blocks[uint32_t(Output::ROLE_STATES)] = block_of(recorder.role_states);
  blocks[uint32_t(Output::ROLE_BEGINS)] = block_of(recorder.role_begins);
  blocks[uint32_t(Output::ROLE_SECTIONS)] = block_of(recorder.role_sections);
  blocks[uint32_t(Output::COPY_SPANS)] = block_of(recorder.copy_spans);
  blocks[uint32_t(Output::READ_SPANS)] = block_of(recorder.read_spans);
  blocks[uint32_t(Output::MMA_SPANS)] = block_of(recorder.mma_spans);
  blocks[uint32_t(Output::PHASE_FLIPS)] = block_of(recorder.phase_flips);
  blocks[uint32_t(Output::BLOCKED_ROLES)] = block_of(recorder.blocked_roles);
  blocks[uint32_t(Output::TRACE)] = block_of(recorder.trace);

  uint64_t header_bytes = 24 + 16 * uint64_t(NUM_OUTPUT_SECTIONS);
  uint64_t total = header_bytes;
  for (const Block& block : blocks) total += aligned(block.count * block.item_bytes);
  if (total > held) {
    memory_release(buffer, held);
    held = held ? 2 * total : total;
    buffer = static_cast<uint8_t*>(memory_allocate(held));
  }
  uint32_t* words = reinterpret_cast<uint32_t*>(buffer);
  words[0] = BUFFER_MAGIC;
  words[1] = BUFFER_VERSION;
  words[2] = NUM_OUTPUT_SECTIONS;
  words[3] = 0;
  uint64_t* table = reinterpret_cast<uint64_t*>(buffer + 16);
  table[0] = total;
  uint64_t offset = header_bytes;
  for (uint32_t place = 0; place < NUM_OUTPUT_SECTIONS; place++) {
    const Block& block = blocks[place];
    table[1 + 2 * place] = offset;
    table[2 + 2 * place] = block.count;
    if (block.count) __builtin_memcpy(buffer + offset, block.items, block.count * block.item_bytes);
    offset += aligned(block.count * block.item_bytes);
  }
  return buffer;
}

}  // namespace gpusim
