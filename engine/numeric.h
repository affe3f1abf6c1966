// Functions of floats that give the same bits on every machine, and the same as gpusim/machine/exact_math.py.
// Only + - * /, square roots, and powers of two that are exact are used: IEEE 754 says what each of these
// gives.
#pragma once

namespace gpusim {

// The exponential function, within 1 unit in the last place.
double exp(double x);

// The natural logarithm, within 1 unit in the last place.
double log(double x);

// `x` to the power of `num`, 0 or more: a product of squares.
double integer_power(double x, int num);

// `x`, 0 or more, to the power of `y`: a product where `y` is whole and up to 4096, else e^(y ln x).
// Up to two units in the last place are lost for each unit of y ln x.
double power(double x, double y);

// The length of a vector, whose squares are no larger than the largest float.
double hypot(double x, double y);

// The error function.
double erf(double x);

// 1 less the error function, with all its bits where that is small.
double erfc(double x);

// The chance that a standard normal variable is at most `x`.
double normal_cdf(double x);

// Which value a standard normal variable is at most with a chance: infinite for 0 and 1.
double normal_inverse_cdf(double chance);

}  // namespace gpusim
