// The C ABI between evoforge and a kernel, language cpp. Every kernel includes this file first.
// Sizes and strides are in elements. Outputs, workspace and packed memory are 64-byte aligned,
// inputs as the task declares them. Outputs never alias inputs.
#pragma once
#include <stdint.h>

enum { EVO_F32, EVO_F64, EVO_F16, EVO_BF16, EVO_I8, EVO_U8, EVO_I16, EVO_I32, EVO_I64, EVO_BOOL };

typedef struct {
    void* data;
    int64_t size[8], stride[8];
    int32_t rank, dtype;
} evo_tensor;

typedef struct {
    int32_t abi, n_in, n_const, n_out, threads;
    const evo_tensor *in, *cst, *out;  // forward's tensors; parameters, then buffers; results
    const void* packed;                // what evo_prepare wrote, or null
    void* ws;                          // contents undefined at every call
    int64_t ws_bytes;
} evo_call;

extern "C" {
__attribute__((visibility("default"))) int64_t evo_workspace(const evo_call* call);     // optional
__attribute__((visibility("default"))) int64_t evo_packed_bytes(const evo_call* call);  // optional, with
__attribute__((visibility("default"))) int evo_prepare(const evo_call* call, void* packed);  // this one
#ifdef __CUDACC__  // language cuda: the data of tensors is on the device, and work goes to the stream
__attribute__((visibility("default"))) int evo_run(const evo_call* call, cudaStream_t stream);
#else
__attribute__((visibility("default"))) int evo_run(const evo_call* call);
#endif
// The others see sizes, strides and constants only: data of `in` and `out` is null.
// evo_run returns 0: done; 1: outside the kernel's domain, nothing written; 2: error.
}

// EVO_SIZE(in0, 1) is size 1 of forward's first tensor: a literal in a baked build (-DEVO_SIZE_in0_1=4096),
// the field `call->in[0].size[1]` in a range build. EVO_STRIDE likewise. The entry points therefore
// name their argument `call`.
#define EVO_SIZE(tensor, dim) (EVO_SIZE_##tensor##_##dim)
#define EVO_STRIDE(tensor, dim) (EVO_STRIDE_##tensor##_##dim)

// EVO_IN(float, 0) is forward's first tensor; EVO_CST and EVO_OUT likewise.
#define EVO_IN(type, i) ((const type*)call->in[i].data)
#define EVO_CST(type, i) ((const type*)call->cst[i].data)
#define EVO_OUT(type, i) ((type*)call->out[i].data)

#include "evoforge_vec.h"
#include "evoforge_memory.h"
#include "evoforge_math.h"
#include "evoforge_reduce.h"
#include "evoforge_matrix.h"
