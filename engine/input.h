// The packed launch: sections of one buffer, as gpusim/program/records.py names them.
#pragma once
#include "records.h"
#include "units.h"

namespace gpusim {

// The input of the run; its pointers lead into the packed buffer.
extern InputData input;

}  // namespace gpusim
