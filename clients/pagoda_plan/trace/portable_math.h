// Functions of <cmath> whose last bit differs between libraries and processors. These give the same
// bits everywhere.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PORTABLE_MATH_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PORTABLE_MATH_H_

namespace pagoda {

// Each is a range reduction and a series, of additions, multiplications and divisions in double
// precision. Code that must be the same everywhere is compiled with -ffp-contract=off, because a
// fused multiplication and addition rounds only once. The relative error is below 1e-15.

// The natural logarithm. REQUIRES: value is finite and above 0.
double PortableLog(double value);
// e to that power. REQUIRES: the result is a normal number.
double PortableExp(double power);
// The cosine of that many turns: of 2 pi * turns. Its error is absolute. REQUIRES: |turns| < 2^40.
double PortableCosOfTurns(double turns);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_PORTABLE_MATH_H_
