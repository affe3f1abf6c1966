// The packed launch: sections of one buffer, as gpusim/program/records.py names them.
#pragma once
#include "records.h"
#include "units.h"

namespace gpusim {

// The input of the run; its pointers lead into the packed buffer.
extern InputData input;

// Reads the table of sections. Returns -2 if all is well, -1 if the header is wrong, else the wrong section.
int read_input(const uint8_t* buffer, uint32_t num_bytes);

}  // namespace gpusim
