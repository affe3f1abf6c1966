// What does a profiler's flush of all caches cost a kernel for its code?
//
// The kernel of kernels/cold_code, which case.py puts beside this file: straight-line code of so many KiB, run four times.

#include "straight.cuh"
