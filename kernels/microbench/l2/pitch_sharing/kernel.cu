// How much of tiles that CTAs share does L2 read where rows do not begin on a line, or not on a sector?
//
// The grid of kernels/wave_sharing, which case.py puts beside this file: a CTA for each tile of a product, that walks its row of A and
// its column of B by TMA. Only the tensor maps are others: rows lie any multiple of 16 bytes apart.

#include "walk.cuh"
