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

// Finds sections by their numbers.
class Reader {
 public:
  Reader(const uint8_t* buffer, uint32_t num_bytes) : buffer_(buffer), num_bytes_(num_bytes) {}

  template <class T>
  void operator()(Input section, const T*& constants) {
    constants = find<T>(section, sizeof(double), sizeof(T) / sizeof(double));
  }

  template <class T>
  void operator()(Input section, Table<T>& records) {
    uint64_t count = entry(section).count;
    records = Table<T>{find<T>(section, sizeof(T), count), uint32_t(count)};
  }

  int wrong = -2;

 private:
  const SectionEntry& entry(Input section) const {
    return reinterpret_cast<const SectionEntry*>(buffer_ + sizeof(Header))[uint32_t(section)];
  }

  template <class T>
  const T* find(Input section, uint64_t item_bytes, uint64_t count) {
    const SectionEntry& found = entry(section);
    bool is_inside = found.offset % 8 == 0 && found.offset <= num_bytes_ && found.count == count &&
                     count <= (num_bytes_ - found.offset) / item_bytes;
    if (!is_inside && wrong == -2) wrong = int(section);
    return reinterpret_cast<const T*>(buffer_ + found.offset);
  }

  const uint8_t* buffer_;
  uint32_t num_bytes_;
};

}  // namespace

int read_input(const uint8_t* buffer, uint32_t num_bytes) {
  const Header* header = reinterpret_cast<const Header*>(buffer);
  uint32_t table_bytes = sizeof(Header) + NUM_INPUT_SECTIONS * sizeof(SectionEntry);
  if (num_bytes < table_bytes || header->magic != BUFFER_MAGIC || header->version != BUFFER_VERSION ||
      header->num_sections != NUM_INPUT_SECTIONS || header->total_bytes != num_bytes) {
    return -1;
  }
  Reader reader(buffer, num_bytes);
  input.for_each(reader);
  return reader.wrong;
}

}  // namespace gpusim
