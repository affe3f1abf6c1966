// Entry points of kernels/validation/hopper_gemm that it does not have: clusters of four and eight, tiles of few columns, no wgmma left in
// flight. case.py gives its kernel.cu as `hopper_gemm.inc`, and these entry points as `shapes.inc`.

#include "hopper_gemm.inc"
