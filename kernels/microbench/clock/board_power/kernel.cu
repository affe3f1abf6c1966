// The work of kernels/power_clock, launch after launch for half a second: wgmma and streams in bursts, by duty.
#include "work.inc"
