// What the slowest of several takes that draw their waits alike: lines, rows and channels of memory, lanes of
// a link. tests/engine/order_statistics.py does the same in Python. Answers are kept.
#pragma once

namespace gpusim {

// The mean of the largest of `num` normal draws, in deviations.
double expected_max(int num);

// The mean of the longest of `num_lines` waits, each none or, with the chance `share_steps` of 64,
// exponential of mean 1.
double slowest_wait(int num_lines, int share_steps);

// The mean of the longest of `num_rows` waits for a queue and for a refresh, each drawn for itself, in waits
// in a queue. That in a queue is none or, with the chance `share_steps` of 64, exponential of mean 1. That
// for a refresh is none or, with the chance `refresh_fraction`, even between none and `refresh`.
double slowest_of_both(int num_rows, int share_steps, double refresh_fraction, double refresh);

// How much later the slowest of `num_parts`, counted in quarters, comes as each waits for turns as well as
// for a refresh. The wait for a refresh is none or, with a chance, even between none and the longest. The
// other is of so many turns of length `turn` that it has this `mean`: a gamma distribution, whose variance is
// mean x turn.
double slowest_beside_writes(double num_parts, double refresh_chance, double longest_refresh, double mean,
                             double turn);

}  // namespace gpusim
