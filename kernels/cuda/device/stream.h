// CUDA's streams, without its headers.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_STREAM_H_
#define PAGODA_KERNELS_CUDA_DEVICE_STREAM_H_

struct CUstream_st;

namespace pagoda::kernels::cuda {

using Stream = CUstream_st*;  // A cudaStream_t or CUstream; null: the default stream.

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_STREAM_H_
