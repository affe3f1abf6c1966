// Units and small arithmetic that all parts share.
#pragma once
#include <stdint.h>

namespace gpusim {

constexpr double SECTOR_BYTES = 32.0;
constexpr double LINE_BYTES = 128.0;
constexpr double WAVEFRONT_BYTES = 128.0;
constexpr double INFINITE = __builtin_huge_val();

// A role's cursor is not so far behind the clock.
constexpr double MOST_LATE_CYCLES = 64.0;

// Multiples of it, less their whole part, fill 0 to 1 evenly however many there are: a step of a Sequence.
constexpr double GOLDEN = 0.6180339887498949;
// Another such number, for what is drawn beside.
constexpr double PLASTIC = 0.5698402909980532;

inline double larger(double a, double b) { return a > b ? a : b; }
inline double smaller(double a, double b) { return a < b ? a : b; }
inline double fraction_of(double x) { return x - __builtin_floor(x); }
// To the nearest whole number, halves to the even one.
inline double rounded(double x) { return __builtin_rint(x); }

// Numbers that fill 0 to 1 evenly, one after the other.
struct Sequence {
  uint32_t num = 0;
  double next(double step) {
    num++;
    return fraction_of(num * step);
  }
};

}  // namespace gpusim
