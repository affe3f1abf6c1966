// The result buffer: totals, counters, timelines, failures, in the order of OUTPUT_SECTIONS.
#pragma once
#include <stdint.h>

namespace gpusim {

// Writes all sections into one new buffer.
uint8_t* write_results();

}  // namespace gpusim
