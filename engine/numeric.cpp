// Functions of floats that give the same bits on every machine: exp, log, power, erf and the normal
// distribution. gpusim/machine/exact_math.py does the same, operation by operation: change both together.
#include "numeric.h"

#include "units.h"

namespace gpusim {

namespace {

constexpr double LOG2_E = 1.4426950408889634;
// the first 32 bits of ln 2: times a whole number it is exact
constexpr double LN2_HIGH = 6.93147180369123816490e-01;
constexpr double LN2_LOW = 1.90821492927058770002e-10;  // what ln 2 is more
constexpr double LARGEST_EXPONENT = 709.782712893384;   // beyond it e^x is infinite
constexpr double LARGEST_SCALED = 709.0;                // up to it e^x is at most 2^1023 times what is left
constexpr double SMALLEST_SCALED = -708.0;              // down to it e^x has all its bits
constexpr double SMALLEST_EXPONENT = -745.2;            // below it e^x is zero
constexpr int SCALE_EXPONENT = 200;                     // by which subnormal results are scaled once more
constexpr double SQRT_HALF = 0.7071067811865476;
constexpr double INVERSE_SQRT_PI = 5.6418958354775628695e-1;
constexpr double LARGEST_INTEGER = 4096.0;  // up to it whole powers are products
constexpr double ERF_NEAR = 0.46875;
constexpr double ERF_FAR = 4.0;
constexpr double ERFC_END = 27.3;  // from it on erfc is zero

// Series, highest power first: of (e^r - 1 - r) / r^2, and of the area tangent.
constexpr double EXP_SERIES[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                 1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                 1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        1.0 / 2.0};
constexpr double LOG_SERIES[] = {2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0,
                                 2.0 / 11.0, 2.0 / 9.0,  2.0 / 7.0,  2.0 / 5.0,  2.0 / 3.0};

// Ratios of polynomials, highest power first.
// Source: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969)
// 631-637.
constexpr double ERF_NEAR_TOP[] = {1.85777706184603153e-1, 3.16112374387056560e00, 1.13864154151050156e02,
                                   3.77485237685302021e02, 3.20937758913846947e03};
constexpr double ERF_NEAR_BOTTOM[] = {1.0, 2.36012909523441209e01, 2.44024637934444173e02,
                                      1.28261652607737228e03, 2.84423683343917062e03};
constexpr double ERF_MIDDLE_TOP[] = {2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e00,
                                     6.61191906371416295e01, 2.98635138197400131e02, 8.81952221241769090e02,
                                     1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03};
constexpr double ERF_MIDDLE_BOTTOM[] = {
    1.00000000000000000e00, 1.57449261107098347e01, 1.17693950891312499e02,
    5.37181101862009858e02, 1.62138957456669019e03, 3.29079923573345963e03,
    4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03};
constexpr double ERF_FAR_TOP[] = {1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
                                  1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4};
constexpr double ERF_FAR_BOTTOM[] = {1.00000000000000000e00, 2.56852019228982242e00, 1.87295284992346725e00,
                                     5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3};

// Ratios of polynomials, highest power first.
// Source: M. J. Wichura, Algorithm AS 241, Applied Statistics 37 (1988) 477-484.
constexpr double NORMAL_MIDDLE_TOP[] = {
    2.5090809287301226727e03, 3.3430575583588128105e04, 6.7265770927008700853e04, 4.5921953931549871457e04,
    1.3731693765509461125e04, 1.9715909503065514427e03, 1.3314166789178437745e02, 3.3871328727963666080e00};
constexpr double NORMAL_MIDDLE_BOTTOM[] = {
    5.2264952788528545610e03, 2.8729085735721942674e04, 3.9307895800092710610e04, 2.1213794301586595867e04,
    5.3941960214247511077e03, 6.8718700749205790830e02, 4.2313330701600911252e01, 1.0};
constexpr double NORMAL_OUTER_TOP[] = {7.74545014278341407640e-04, 2.27238449892691845833e-02,
                                       2.41780725177450611770e-01, 1.27045825245236838258e00,
                                       3.64784832476320460504e00,  5.76949722146069140550e00,
                                       4.63033784615654529590e00,  1.42343711074968357734e00};
constexpr double NORMAL_OUTER_BOTTOM[] = {1.05075007164441684324e-09, 5.47593808499534494600e-04,
                                          1.51986665636164571966e-02, 1.48103976427480074590e-01,
                                          6.89767334985100004550e-01, 1.67638483018380384940e00,
                                          2.05319162663775882187e00,  1.0};
constexpr double NORMAL_TAIL_TOP[] = {2.01033439929228813265e-07, 2.71155556874348757815e-05,
                                      1.24266094738807843860e-03, 2.65321895265761230930e-02,
                                      2.96560571828504891230e-01, 1.78482653991729133580e00,
                                      5.46378491116411436990e00,  6.65790464350110377720e00};
constexpr double NORMAL_TAIL_BOTTOM[] = {2.04426310338993978564e-15, 1.42151175831644588870e-07,
                                         1.84631831751005468180e-05, 7.86869131145613259100e-04,
                                         1.48753612908506148525e-02, 1.36929880922735805310e-01,
                                         5.99832206555887937690e-01, 1.0};

// By Horner's rule.
template <int NUM>
double polynomial(const double (&coefficients)[NUM], double x) {
  double found = 0.0;
  for (double coefficient : coefficients) found = found * x + coefficient;
  return found;
}

uint64_t bits_of(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

double of_bits(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// 2 to the power of `num`, from -1022 to 1023.
double power_of_two(int num) { return of_bits(uint64_t(num + 1023) << 52); }

// `x`, above 0, as a number from 1/2 up to 1 and the exponent of the power of two that it is multiplied by.
double normalized(double x, int* exponent) {
  constexpr uint64_t EXPONENT_BITS = uint64_t(0x7ff) << 52;
  uint64_t bits = bits_of(x);
  int num = int(bits >> 52);
  *exponent = num - 1022;
  if (num == 0) {  // subnormal
    bits = bits_of(x * power_of_two(54));
    *exponent = int(bits >> 52) - 1022 - 54;
  }
  return of_bits((bits & ~EXPONENT_BITS) | (uint64_t(1022) << 52));
}

}  // namespace

// ln 2 is taken out a whole number of times; what is left has its Taylor series.
double exp(double x) {
  if (!(SMALLEST_SCALED <= x && x <= LARGEST_SCALED)) {
    if (x > LARGEST_EXPONENT) return INFINITE;
    if (x < SMALLEST_EXPONENT) return 0.0;
    if (x != x) return x;
  }
  int num = x >= 0.0 ? int(x * LOG2_E + 0.5) : int(x * LOG2_E - 0.5);
  double high = x - num * LN2_HIGH;
  double low = num * LN2_LOW;
  double r = high - low;
  double beyond = r * r * polynomial(EXP_SERIES, r);
  double found = 1.0 + (high + (beyond - low));
  if (x > LARGEST_SCALED) return found * power_of_two(num - 1) * 2.0;
  if (x < SMALLEST_SCALED) return found * power_of_two(num + SCALE_EXPONENT) * power_of_two(-SCALE_EXPONENT);
  return found * power_of_two(num);
}

// `x` is 2^num times a number near 1, whose logarithm is a series of the area tangent.
double log(double x) {
  if (!(0.0 < x && x < INFINITE)) {
    if (x == 0.0) return -INFINITE;
    return x > 0.0 ? x : __builtin_nan("");
  }
  int num = 0;
  double near = normalized(x, &num);
  if (near < SQRT_HALF) {
    near *= 2.0;
    num -= 1;
  }
  double f = near - 1.0;
  double s = f / (2.0 + f);
  double z = s * s;
  double beyond = z * polynomial(LOG_SERIES, z);
  double half = 0.5 * f * f;
  return num * LN2_HIGH - ((half - (s * (half + beyond) + num * LN2_LOW)) - f);
}

double integer_power(double x, int num) {
  double found = 1.0;
  double square = x;
  while (num) {
    if (num & 1) found *= square;
    num >>= 1;
    if (num) square *= square;
  }
  return found;
}

double power(double x, double y) {
  if (0.0 <= y && y <= LARGEST_INTEGER) {
    int num = int(y);
    if (num == y) return integer_power(x, num);
  }
  if (x == 1.0) return 1.0;
  return exp(y * log(x));
}

double hypot(double x, double y) { return __builtin_sqrt(x * x + y * y); }

double erf(double x) {
  if (x < 0.0) return -erf(-x);
  if (x > ERF_NEAR) return 1.0 - erfc(x);
  double square = x * x;
  return x * (polynomial(ERF_NEAR_TOP, square) / polynomial(ERF_NEAR_BOTTOM, square));
}

double erfc(double x) {
  if (x < -ERF_NEAR) return 2.0 - erfc(-x);
  if (x <= ERF_NEAR) return 1.0 - erf(x);
  if (!(x < ERFC_END)) return x >= ERFC_END ? 0.0 : x;
  double found = 0.0;
  if (x <= ERF_FAR) {
    found = polynomial(ERF_MIDDLE_TOP, x) / polynomial(ERF_MIDDLE_BOTTOM, x);
  } else {
    double inverse = 1.0 / (x * x);
    found = inverse * (polynomial(ERF_FAR_TOP, inverse) / polynomial(ERF_FAR_BOTTOM, inverse));
    found = (INVERSE_SQRT_PI - found) / x;
  }
  double rounded = int(x * 16.0) / 16.0;  // its square is exact
  double left = (x - rounded) * (x + rounded);
  return exp(-rounded * rounded) * exp(-left) * found;
}

double normal_cdf(double x) { return 0.5 * erfc(-x * SQRT_HALF); }

double normal_inverse_cdf(double chance) {
  if (!(0.0 < chance && chance < 1.0))
    return chance == 0.0 ? -INFINITE : chance == 1.0 ? INFINITE : __builtin_nan("");
  double apart = chance - 0.5;
  if (-0.425 <= apart && apart <= 0.425) {
    double r = 0.180625 - apart * apart;
    return apart * (polynomial(NORMAL_MIDDLE_TOP, r) / polynomial(NORMAL_MIDDLE_BOTTOM, r));
  }
  double r = __builtin_sqrt(-log(apart < 0.0 ? chance : 1.0 - chance));
  double found = 0.0;
  if (r <= 5.0) {
    r -= 1.6;
    found = polynomial(NORMAL_OUTER_TOP, r) / polynomial(NORMAL_OUTER_BOTTOM, r);
  } else {
    r -= 5.0;
    found = polynomial(NORMAL_TAIL_TOP, r) / polynomial(NORMAL_TAIL_BOTTOM, r);
  }
  return apart < 0.0 ? -found : found;
}

}  // namespace gpusim
