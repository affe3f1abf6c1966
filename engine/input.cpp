// The packed launch: sections of one buffer, as gpusim/program/records.py names them.
#include "input.h"

namespace gpusim {

InputData input;

namespace {

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

// Finds sections one after the other, in the order of their numbers.
class Reader {
 public:
  Reader(const uint8_t* buffer, uint32_t num_bytes)
      : buffer_(buffer),
        num_bytes_(num_bytes),
        entries_(reinterpret_cast<const SectionEntry*>(buffer + sizeof(Header))) {}

  template <class T>
  void part(Input section, const T*& constants) {
    const uint8_t* found = find(section, sizeof(double), sizeof(T) / sizeof(double));
    constants = reinterpret_cast<const T*>(found);
  }

  template <class T>
  void table(Input section, Table<T>& records) {
    uint64_t count = entries_[uint32_t(section)].count;
    records.items = reinterpret_cast<const T*>(find(section, sizeof(T), count));
    records.size = uint32_t(count);
  }

  int wrong() const { return wrong_; }

 private:
  const uint8_t* find(Input section, uint64_t item_bytes, uint64_t count) {
    const SectionEntry& entry = entries_[uint32_t(section)];
    bool is_inside = entry.offset % 8 == 0 && entry.offset <= num_bytes_ && entry.count == count &&
                     count <= (num_bytes_ - entry.offset) / item_bytes;
    if (!is_inside && wrong_ == -2) wrong_ = int(section);
    return buffer_ + entry.offset;
  }

  const uint8_t* buffer_;
  uint32_t num_bytes_;
  const SectionEntry* entries_;
  int wrong_ = -2;
};

}  // namespace

int InputData::read(const uint8_t* buffer, uint32_t num_bytes) {
  const Header* header = reinterpret_cast<const Header*>(buffer);
  uint32_t table_bytes = sizeof(Header) + NUM_INPUT_SECTIONS * sizeof(SectionEntry);
  if (num_bytes < table_bytes || header->magic != BUFFER_MAGIC || header->version != BUFFER_VERSION ||
      header->num_sections != NUM_INPUT_SECTIONS || header->total_bytes != num_bytes) {
    return -1;
  }
  Reader reader(buffer, num_bytes);
  reader.part(Input::CONSTANTS_LAUNCH, launch);
  reader.part(Input::CONSTANTS_IDEALS, ideals);
  reader.part(Input::CONSTANTS_DISPATCHER, dispatcher);
  reader.part(Input::CONSTANTS_HBM, hbm);
  reader.part(Input::CONSTANTS_L2, l2);
  reader.part(Input::CONSTANTS_XBAR, xbar);
  reader.part(Input::CONSTANTS_L1, l1);
  reader.part(Input::CONSTANTS_SMEM, smem);
  reader.part(Input::CONSTANTS_WARP_SCHEDULER, warp_scheduler);
  reader.part(Input::CONSTANTS_TENSOR_CORE, tensor_core);
  reader.part(Input::CONSTANTS_TMA, tma);
  reader.part(Input::CONSTANTS_MBARRIER, mbarrier);
  reader.part(Input::CONSTANTS_DSMEM, dsmem);
  reader.part(Input::CONSTANTS_INSTRUCTION_CACHE, instruction_cache);
  reader.table(Input::ACCESSES, accesses);
  reader.table(Input::STORES, stores);
  reader.table(Input::ASYNC_COPIES, async_copies);
  reader.table(Input::TMA_LOADS, tma_loads);
  reader.table(Input::TMA_STORES, tma_stores);
  reader.table(Input::FETCHES, fetches);
  reader.table(Input::WGMMAS, wgmmas);
  reader.table(Input::MMA_SYNCS, mma_syncs);
  reader.table(Input::FAR_CODES, far_codes);
  reader.table(Input::LOOP_CODES, loop_codes);
  reader.table(Input::FMAS, fmas);
  reader.table(Input::ALUS, alus);
  reader.table(Input::PROGRAMS, programs);
  reader.table(Input::ROLES, roles);
  reader.table(Input::MBARRIERS, mbarriers);
  reader.table(Input::NAMED_BARRIERS, named_barriers);
  reader.table(Input::TENSORS, tensors);
  reader.table(Input::WALKS, walks);
  reader.table(Input::LOSS_ROWS, loss_rows);
  reader.table(Input::GPC_LINKS, gpc_links);
  reader.table(Input::WRITE_LINKS, write_links);
  reader.table(Input::SMS, sms);
  reader.table(Input::PARTITIONS, partitions);
  reader.table(Input::OPS, ops);
  reader.table(Input::LISTS, lists);
  reader.table(Input::NEIGHBOURS, neighbours);
  reader.table(Input::SLOTS, slots);
  reader.table(Input::CTA_CLASS, cta_class);
  reader.table(Input::CLASS_PROGRAMS, class_programs);
  reader.table(Input::CTA_PANELS, cta_panels);
  reader.table(Input::PANEL_GROUPS, panel_groups);
  reader.table(Input::GROUP_ROWS, group_rows);
  reader.table(Input::WRITTEN_BACK, written_back);
  reader.table(Input::TIMES_FETCHED, times_fetched);
  return reader.wrong();
}

}  // namespace gpusim
